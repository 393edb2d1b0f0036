# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# A directory that is there already: nomad volume register volume-register.hcl
# It needs to exist: the controller looks for it. "nomad volume deregister" leaves it alone.

id        = "media"
name      = "media"
type      = "csi"
plugin_id = "nfs"

# server#share without its first slash#directory## is how csi-driver-nfs writes it, too.
external_id = "nfs.example.com#srv/nomad#media##"

capability {
  access_mode     = "multi-node-multi-writer"
  attachment_mode = "file-system"
}

capability {
  access_mode     = "multi-node-reader-only"
  attachment_mode = "file-system"
}

mount_options {
  mount_flags = ["nfsvers=4.1"]
}

# What the node mounts.
context {
  server = "nfs.example.com"
  share  = "/srv/nomad"
  subDir = "media"
}
