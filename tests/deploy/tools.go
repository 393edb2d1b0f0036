// SPDX-License-Identifier: Apache-2.0
// Copyright the csi-nfs authors

//go:build tools

package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
)
