# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# Completion for fish. tests/check-completions compares it with --help.

set -l daemon 'not __fish_seen_subcommand_from check'
set -l check '__fish_seen_subcommand_from check'

complete -c csi-nfs -f
complete -c csi-nfs -n __fish_use_subcommand -a check -d 'Test an NFS export'

complete -c csi-nfs -n $daemon -l endpoint -x -d 'Unix socket to serve'
complete -c csi-nfs -n $daemon -l nodeid -x -d 'Name of this node'
complete -c csi-nfs -n $daemon -l mode -x -a 'controller node all' -d 'Services to offer'
complete -c csi-nfs -n $daemon -l server -x -a '(__fish_print_hostnames)' -d 'NFS server if a StorageClass has none'
complete -c csi-nfs -n $daemon -l share -x -d 'Exported path if a StorageClass has none'
complete -c csi-nfs -n $daemon -l drivername -x -d 'Name of the driver'
complete -c csi-nfs -n $daemon -l mount-permissions -x -d 'Mode of volume directories'
complete -c csi-nfs -n $daemon -l default-ondelete-policy -x -a 'delete retain archive' -d 'What to do with a deleted volume'
complete -c csi-nfs -n $daemon -l delete-mode -x -a 'background inline' -d 'When to free space'
complete -c csi-nfs -n $daemon -l remove-archived-volume-path -d 'Replace an archive of the same name'
complete -c csi-nfs -n $daemon -l snapshot-compression -x -a 'none gzip zstd' -d 'Compression of snapshots'
complete -c csi-nfs -n $daemon -l enable-snapshot-compression -d 'gzip, or none if false'
complete -c csi-nfs -n $daemon -l verify-clones -d 'Read clones again and compare checksums'
complete -c csi-nfs -n $daemon -l replica-timeout -x -d 'Idle time of a dead controller'
complete -c csi-nfs -n $daemon -l window -x -d 'Operations in flight'
complete -c csi-nfs -n $daemon -l enable-get-snapshot -d 'Advertise GetSnapshot'
complete -c csi-nfs -n $daemon -l state-dir -x -a '(__fish_complete_directories)' -d 'Where a node notes what it has published'
complete -c csi-nfs -n $daemon -l inline-volumes -x -d 'Exports that pods may mount inline'
complete -c csi-nfs -n $daemon -l log-level -x -a 'error warn info debug' -d 'What to log'
complete -c csi-nfs -n $daemon -l log-format -x -a 'text json' -d 'Format of the log'
complete -c csi-nfs -n $daemon -l version -d 'Print the version and exit'
complete -c csi-nfs -n $daemon -l help -d 'Print the options and exit'

complete -c csi-nfs -n $check -l server -x -a '(__fish_print_hostnames)' -d 'The NFS server'
complete -c csi-nfs -n $check -l share -x -d 'The path that it exports'
complete -c csi-nfs -n $check -l mount -d 'Also mount it'
complete -c csi-nfs -n $check -l mount-options -x -d 'As in a StorageClass'
complete -c csi-nfs -n $check -l uid -x -d 'Owner of volumes'
complete -c csi-nfs -n $check -l gid -x -d 'Their group'
complete -c csi-nfs -n $check -l format -x -a 'text json' -d 'Format of the report'
complete -c csi-nfs -n $check -l help -d 'Print the options and exit'
