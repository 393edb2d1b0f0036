// SPDX-License-Identifier: Apache-2.0
// Copyright the csi-nfs authors

// go-nfs serves a folder over NFSv3 with the go-nfs library, as programs like rclone do: NFS and
// MOUNT on one port, AUTH_NULL as the only flavor that MOUNT lists. With -no-links it refuses
// symbolic links, as a file system without them.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	nfs "github.com/willscott/go-nfs"
	"github.com/willscott/go-nfs/helpers"
	"golang.org/x/sys/unix"
)

const handles = 5000 // in its cache, which it searches for each call; others are stale

// folder is a file system whose attributes can be changed.
type folder struct {
	billy.Filesystem
	noLinks bool
}

func (f folder) path(name string) string { return f.Join(f.Root(), name) }

func (f folder) Symlink(target, link string) error {
	if f.noLinks {
		return billy.ErrNotSupported
	}
	return f.Filesystem.Symlink(target, link)
}

// Chmod leaves symbolic links alone: Linux keeps no mode for them.
func (f folder) Chmod(name string, mode os.FileMode) error {
	if info, err := os.Lstat(f.path(name)); err != nil || info.Mode()&os.ModeSymlink != 0 {
		return err
	}
	return os.Chmod(f.path(name), mode)
}

func (f folder) Lchown(name string, uid, gid int) error {
	return os.Lchown(f.path(name), uid, gid)
}

func (f folder) Chown(name string, uid, gid int) error { return os.Chown(f.path(name), uid, gid) }

func (f folder) Chtimes(name string, atime, mtime time.Time) error {
	times := []unix.Timespec{unix.NsecToTimespec(atime.UnixNano()),
		unix.NsecToTimespec(mtime.UnixNano())}
	return unix.UtimesNanoAt(unix.AT_FDCWD, f.path(name), times, unix.AT_SYMLINK_NOFOLLOW)
}

// handler tells the free space, of which the library knows nothing.
type handler struct {
	nfs.Handler
}

func (handler) FSStat(_ context.Context, fs billy.Filesystem, s *nfs.FSStat) error {
	var got unix.Statfs_t
	if err := unix.Statfs(fs.Root(), &got); err != nil {
		return err
	}
	s.TotalSize = got.Blocks * uint64(got.Bsize)
	s.FreeSize = got.Bfree * uint64(got.Bsize)
	s.AvailableSize = got.Bavail * uint64(got.Bsize)
	return nil
}

// wholeRecords gives its connections' requests to the library one by one. The library reads file
// handles with one Read of a buffer of 4 KiB; of a handle at its end it would take a part, and zeros.
type wholeRecords struct {
	net.Listener
}

func (l wholeRecords) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &recordConn{Conn: conn}, nil
}

type recordConn struct {
	net.Conn
	rest []byte // of the record
}

func (c *recordConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		var mark [4]byte
		if _, err := io.ReadFull(c.Conn, mark[:]); err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(mark[:]) &^ (1 << 31)
		c.rest = make([]byte, len(mark)+int(size))
		copy(c.rest, mark[:])
		if _, err := io.ReadFull(c.Conn, c.rest[len(mark):]); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address and port")
	noLinks := flag.Bool("no-links", false, "refuse symbolic links")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go-nfs [-listen ADDRESS:PORT] [-no-links] FOLDER")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	inner := helpers.NewNullAuthHandler(folder{osfs.New(flag.Arg(0)), *noLinks})
	cache := helpers.NewCachingHandler(handler{inner}, handles)
	fmt.Fprintln(os.Stderr, nfs.Serve(wholeRecords{listener}, cache))
	os.Exit(1)
}
