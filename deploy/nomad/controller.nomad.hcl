# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# Creates and deletes volumes. It speaks NFS itself, in user space: no mount, hence neither
# privileges nor the host's network. doc/install-nomad.md has the steps.

job "csi-nfs-controller" {
  type = "service"

  group "controller" {
    # Nomad asks one of them at a time; if it dies, the other goes on with what it left.
    count = 2

    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    task "nfs" {
      driver = "docker"

      csi_plugin {
        # The same in node.nomad.hcl, and plugin_id in volumes.
        id   = "nfs"
        type = "controller"

        # Nomad finds the socket here by itself: it sets CSI_ENDPOINT to csi.sock in this folder,
        # from which csi-nfs takes the place of --endpoint.
        mount_dir = "/csi"

        # It answers as soon as it runs, whether or not a server does.
        health_timeout = "30s"
      }

      # The NFS server sees this user id (AUTH_SYS). It gives the process no rights here:
      # every capability is dropped below. Where the export squashes root, volumes give a uid.
      user = "0"

      config {
        image = "csi-nfs-controller:0.1.0"

        args = [
          "--mode=controller",
          # For volumes that name no server or share, and to list volumes:
          # "--server=nfs.example.com",
          # "--share=/srv/nomad",
        ]

        cap_drop        = ["all"]
        readonly_rootfs = true
        security_opt    = ["no-new-privileges"]

        # Exports are "secure" by default, that is, want a source port below 1024. This allows it in
        # the container's own network namespace without a capability.
        sysctl = {
          "net.ipv4.ip_unprivileged_port_start" = "0"
        }
      }

      # The calls in progress get 5 s to end after SIGTERM.
      kill_timeout = "30s"

      # Three clones beside a snapshot and deletions peak at a quarter of the memory; copies of
      # volumes with very many hard links need more, see doc/benchmarks.md.
      resources {
        cpu    = 100
        memory = 128
      }
    }
  }
}
