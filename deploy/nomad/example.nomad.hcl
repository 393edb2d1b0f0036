# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# Three allocations, on any clients, that write to the volume of volume-create.hcl.

job "csi-nfs-example" {
  type = "service"

  group "writers" {
    count = 3

    volume "data" {
      type            = "csi"
      source          = "shared-data"
      access_mode     = "multi-node-multi-writer"
      attachment_mode = "file-system"
    }

    task "writer" {
      driver = "docker"
      user   = "1000:1000"

      config {
        image   = "docker.io/library/busybox:1.37.0"
        command = "sh"
        args    = ["-c", "while date >>/data/$NOMAD_ALLOC_INDEX; do sleep 5; done"]
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
