{{- /*
SPDX-License-Identifier: Apache-2.0
Copyright the csi-nfs authors

What several templates need.
*/ -}}

{{- /* A number as it was written: helm reads all of them as floating point. */ -}}
{{- define "csi-nfs.number" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- define "csi-nfs.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- /* Labels of the pods: none that changes with the chart's version, which would restart them. */ -}}
{{- define "csi-nfs.pod-labels" -}}
{{- $labels := dict "app.kubernetes.io/name" (include "csi-nfs.name" .)
	"app.kubernetes.io/instance" .Release.Name -}}
{{- toYaml (mergeOverwrite $labels (.Values.customLabels | default dict)) -}}
{{- end }}

{{- define "csi-nfs.labels" -}}
{{- $labels := dict "app.kubernetes.io/name" (include "csi-nfs.name" .)
	"app.kubernetes.io/instance" .Release.Name
	"app.kubernetes.io/managed-by" .Release.Service
	"app.kubernetes.io/version" .Chart.AppVersion
	"helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) -}}
{{- toYaml (mergeOverwrite $labels (.Values.customLabels | default dict)) -}}
{{- end }}

{{- /* The label app of the pods of helm test. */ -}}
{{- define "csi-nfs.test-app" -}}
{{- printf "%s-test" (.Values.controller.name | trunc 58) -}}
{{- end }}

{{- /* Whether image.nfs names csi-driver-nfs's image, which cannot run here: "true" or nothing. */ -}}
{{- define "csi-nfs.foreign-image" -}}
{{- if eq (base .Values.image.nfs.repository) "nfsplugin" }}true{{ end -}}
{{- end }}

{{- /* image and imagePullPolicy. Takes the root and the name of the image in the values. */ -}}
{{- define "csi-nfs.image" -}}
{{- $image := get .root.Values.image .name -}}
{{- $repository := $image.repository -}}
{{- $tag := $image.tag | default "" | toString -}}
{{- $digest := $image.digest | default "" -}}
{{- if and (eq .name "nfs") (include "csi-nfs.foreign-image" .root) -}}
{{- $repository = "csi-nfs" -}}
{{- $tag = "" -}}
{{- $digest = "" -}}
{{- end -}}
{{- /* Older ones exit at an option that the chart gives them. */ -}}
{{- $oldest := get (dict "csiProvisioner" "6.0.0" "csiResizer" "2.0.0" "csiSnapshotter" "8.4.0" "externalSnapshotter" "8.4.0") .name -}}
{{- if and $oldest (not $digest) (regexMatch "^v?[0-9]+[.][0-9]+[.][0-9]+$" $tag) -}}
{{- if semverCompare (printf "<%s" $oldest) $tag -}}
{{- fail (printf "image.%s.tag: %s does not know the options of this chart: remove the tag, or mirror v%s or later" .name $tag $oldest) -}}
{{- end -}}
{{- end -}}
{{- if hasPrefix "/" $repository -}}
{{- $repository = printf "%s%s" (.root.Values.image.baseRepo | trimSuffix "/") $repository -}}
{{- end -}}
{{- if $digest -}}
image: {{ printf "%s@%s" $repository $digest | quote }}
{{- else -}}
image: {{ printf "%s:%s" $repository ($tag | default .root.Chart.AppVersion) | quote }}
{{- end }}
{{- with $image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* The same of csi-nfs in the controller. Takes the root. */ -}}
{{- define "csi-nfs.controller-image" -}}
{{- $name := ternary "nfsController" "nfs" (ne .Values.image.nfsController.repository "") -}}
{{- include "csi-nfs.image" (dict "root" . "name" $name) -}}
{{- end }}

{{- /* What every container has but csi-nfs on the nodes. */ -}}
{{- define "csi-nfs.unprivileged" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
{{- end }}

{{- /* --log-level, where the value is a level and not csi-driver-nfs's number. */ -}}
{{- define "csi-nfs.log-level" -}}
{{- if and (kindIs "string" .) (has . (list "error" "warn" "debug")) }}
- --log-level={{ . }}
{{- end -}}
{{- end }}

{{- /* What both services of the driver are told of volumes. */ -}}
{{- define "csi-nfs.driver-args" -}}
{{- if ne .Values.driver.name "nfs.csi.k8s.io" }}
- --drivername={{ .Values.driver.name }}
{{- end }}
{{- $permissions := include "csi-nfs.number" .Values.driver.mountPermissions }}
{{- if ne $permissions "0" }}
- {{ printf "--mount-permissions=%s" $permissions | quote }}
{{- end }}
{{- end }}

{{- /* Arguments that the administrator adds. */ -}}
{{- define "csi-nfs.extra-args" -}}
{{- range . }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "csi-nfs.pull-secrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Where the controller and the snapshot controller run. */ -}}
{{- define "csi-nfs.placement" -}}
nodeSelector:
  {{- toYaml (mergeOverwrite (dict "kubernetes.io/os" "linux") (.Values.controller.nodeSelector | default dict)) | nindent 2 }}
{{- $affinity := deepCopy (.Values.controller.affinity | default dict) }}
{{- if and (or .Values.controller.runOnControlPlane .Values.controller.runOnMaster) (not (hasKey $affinity "nodeAffinity")) }}
{{- $terms := list }}
{{- if .Values.controller.runOnControlPlane }}
{{- $key := dict "key" "node-role.kubernetes.io/control-plane" "operator" "Exists" }}
{{- $terms = append $terms (dict "matchExpressions" (list $key)) }}
{{- end }}
{{- if .Values.controller.runOnMaster }}
{{- $key := dict "key" "node-role.kubernetes.io/master" "operator" "Exists" }}
{{- $terms = append $terms (dict "matchExpressions" (list $key)) }}
{{- end }}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $_ := set $affinity "nodeAffinity" $required }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* One StorageClass. Takes the root and the class of the values. */ -}}
{{- define "csi-nfs.storageclass" -}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {{ required "a StorageClass needs a name" .class.name }}
  labels:
    {{- include "csi-nfs.labels" .root | nindent 4 }}
  {{- with .class.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
provisioner: {{ .root.Values.driver.name }}
{{- /* A parameter without a value, such as an empty subDir, counts as left out. */}}
{{- $parameters := dict }}
{{- range $key, $value := .class.parameters }}
{{- if not (kindIs "invalid" $value) }}
{{- $_ := set $parameters $key (include "csi-nfs.number" $value) }}
{{- end }}
{{- end }}
{{- with $parameters }}
parameters:
  {{- toYaml . | nindent 2 }}
{{- end }}
reclaimPolicy: {{ .class.reclaimPolicy | default "Delete" }}
volumeBindingMode: {{ .class.volumeBindingMode | default "Immediate" }}
allowVolumeExpansion: {{ ternary .class.allowVolumeExpansion true (hasKey .class "allowVolumeExpansion") }}
{{- with .class.mountOptions }}
mountOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Where kubelet finds the driver's socket: one folder for each driver on the node. */ -}}
{{- define "csi-nfs.plugin-dir" -}}
{{- $name := "csi-nfsplugin" -}}
{{- if ne .Values.driver.name "nfs.csi.k8s.io" -}}
{{- $name = .Values.driver.name -}}
{{- end -}}
{{- .Values.kubeletDir | trimSuffix "/" }}/plugins/{{ $name -}}
{{- end }}
