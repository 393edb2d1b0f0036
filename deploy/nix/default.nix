# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
#
# nix-build deploy/nix --arg src ./csi-nfs-0.1.0.tar.xz; without src, the source tree around this.
{
  pkgs ? import <nixpkgs> { },
  src ? ../..,
}:

pkgs.stdenv.mkDerivation {
  pname = "csi-nfs";
  version = "0.1.0";
  inherit src;

  strictDeps = true;
  nativeBuildInputs = with pkgs; [
    autoreconfHook
    pkg-config
    protobuf
    protobufc
  ];
  buildInputs = with pkgs; [
    libarchive
    libnfs
    libtirpc
    libuv
    nghttp2
    protobuf
    protobufc
    util-linux
    zlib
  ];
  checkInputs = [ pkgs.check ];
  doCheck = true;

  # Libraries that are loaded by name, whose folder no search path has.
  LIBARCHIVE_SONAME = "${pkgs.lib.getLib pkgs.libarchive}/lib/libarchive.so";
  LIBTIRPC_SONAME = "${pkgs.lib.getLib pkgs.libtirpc}/lib/libtirpc.so";

  configureFlags = [
    "--sysconfdir=/etc"
    "--runstatedir=/run"
    "--with-mount-nfs=${pkgs.nfs-utils}/bin/mount.nfs"
    "--with-start-statd=${pkgs.nfs-utils}/bin/start-statd"
    "--with-systemdsystemunitdir=${placeholder "out"}/lib/systemd/system"
  ];

  enableParallelBuilding = true;

  meta = {
    description = "NFS volumes through the Container Storage Interface";
    license = pkgs.lib.licenses.asl20;
    platforms = pkgs.lib.platforms.linux;
    mainProgram = "csi-nfs";
  };
}
