# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# Mounts volumes on every client: privileged, because mounting is, and in the network of the host,
# because the kernel's NFS connections live in the network namespace that they were made in and must
# outlive this task. doc/install-nomad.md has the steps.

job "csi-nfs-node" {
  # One on each client that may run a task with a volume.
  type = "system"

  group "node" {
    task "nfs" {
      driver = "docker"

      csi_plugin {
        # The same in controller.nomad.hcl, and plugin_id in volumes.
        id   = "nfs"
        type = "node"

        # Nomad finds the socket here by itself: it sets CSI_ENDPOINT to csi.sock in this folder,
        # from which csi-nfs takes the place of --endpoint.
        mount_dir = "/csi"

        # Volumes are mounted below this folder. Nomad makes it a shared mount, so that they appear
        # on the host, and stay there while this task is replaced.
        stage_publish_base_dir = "/local/csi"

        # It answers as soon as it runs, whether or not a server does.
        health_timeout = "30s"
      }

      config {
        image = "csi-nfs:0.1.0"

        args = [
          "--mode=node",
          # Unique, and the same after a restart.
          "--nodeid=${node.unique.id}",
          # The default of --state-dir is in the container and is lost with it. That does little
          # harm: Nomad has no access mode for which it would be needed (SINGLE_NODE_SINGLE_WRITER),
          # and a volume with mountPermissions gets its mode once more.
        ]

        privileged   = true
        network_mode = "host"
      }

      # The calls in progress get 5 s to end after SIGTERM.
      kill_timeout = "30s"

      resources {
        cpu    = 100
        memory = 128
      }
    }
  }
}
