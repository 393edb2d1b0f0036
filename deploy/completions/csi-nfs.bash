# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# Completion for bash. tests/check-completions compares it with --help.

_csi_nfs_options='
--endpoint= --nodeid= --mode= --server= --share= --drivername= --mount-permissions=
--default-ondelete-policy= --delete-mode= --remove-archived-volume-path --snapshot-compression=
--enable-snapshot-compression --verify-clones --replica-timeout= --window= --enable-get-snapshot
--state-dir= --inline-volumes= --log-level= --log-format= --version --help'

_csi_nfs_check_options='
--server= --share= --mount --mount-options= --uid= --gid= --format= --help'

# _csi_nfs_values OPTION: the words that an option takes, or nothing.
_csi_nfs_values() {
	case $1 in
	--mode) echo controller node all ;;
	--default-ondelete-policy) echo delete retain archive ;;
	--delete-mode) echo background inline ;;
	--snapshot-compression) echo none gzip zstd ;;
	--log-level) echo error warn info debug ;;
	--log-format | --format) echo text json ;;
	esac
}

# bash splits words at '=', as COMP_WORDBREAKS says.
_csi_nfs() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} option=''
	local options=$_csi_nfs_options

	[ "${COMP_WORDS[1]}" = check ] && options=$_csi_nfs_check_options
	if [ "$word" = = ]; then
		option=$before word=''
	elif [ "$before" = = ]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	elif [[ " ${options//$'\n'/ } " == *" $before= "* ]]; then
		option=$before
	fi
	COMPREPLY=()
	case $option in
	--state-dir)
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		;;
	--server)
		mapfile -t COMPREPLY < <(compgen -A hostname -- "$word")
		;;
	'')
		[ "$COMP_CWORD" -ne 1 ] || options="check $options"
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
		[[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
		;;
	*)
		mapfile -t COMPREPLY < <(compgen -W "$(_csi_nfs_values "$option")" -- "$word")
		;;
	esac
}

complete -F _csi_nfs csi-nfs
