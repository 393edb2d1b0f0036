//go:build tools

package tools

import _ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
