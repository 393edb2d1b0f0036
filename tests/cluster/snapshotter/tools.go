// SPDX-License-Identifier: Apache-2.0
// Copyright the csi-nfs authors

//go:build tools

package tools

import (
	_ "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"
	_ "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller"
)
