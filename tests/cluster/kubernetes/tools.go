// SPDX-License-Identifier: Apache-2.0
// Copyright the csi-nfs authors

//go:build tools

// Package tools names the programs of Kubernetes that ../build builds, so that go.mod pins them.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
