# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# A new directory: nomad volume create volume-create.hcl

id        = "shared-data"
name      = "shared-data" # the directory's, hence unique on the share, across namespaces
type      = "csi"
plugin_id = "nfs"

# Recorded and reported, but no limit: NFS has no quota for a directory.
capacity_min = "10GiB"

# One block for each way in which a job may ask for it.
capability {
  access_mode     = "multi-node-multi-writer"
  attachment_mode = "file-system"
}

capability {
  access_mode     = "multi-node-reader-only"
  attachment_mode = "file-system"
}

mount_options {
  mount_flags = ["nfsvers=4.1", "noatime"]
}

# The keys of a StorageClass, see csi-nfs-storageclass(7).
parameters {
  server = "nfs.example.com"
  share  = "/srv/nomad"

  # Below another directory, in place of one with the volume's name at the top of the share. There
  # are no variables: Nomad passes no metadata.
  # subDir = "team-a/shared-data"

  # Owner and mode of the directory, for tasks that do not run as root.
  uid              = "1000"
  gid              = "1000"
  mountPermissions = "0770"

  # What "nomad volume delete" does with the data: delete, retain or archive.
  onDelete = "retain"
}
