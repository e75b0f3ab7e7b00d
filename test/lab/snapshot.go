package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Snapshot copies etcd's data as it is, into a folder that goes with the control plane.
func (c *ControlPlane) Snapshot() (dir string, err error) {
	if dir, err = os.MkdirTemp(c.dir, "snapshot-"); err != nil {
		return "", err
	}
	// Stopped where it stands, so that what is copied is what a crash would leave.
	if err := c.etcd.signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.etcd.signal(syscall.SIGCONT)) }()
	return dir, os.CopyFS(filepath.Join(dir, "data"), os.DirFS(c.data))
}

// Restore ends API server and etcd, and starts them with the data of a snapshot: what came later never was, and
// resourceVersions fall back.
func (c *ControlPlane) Restore(ctx context.Context, snapshot string) error {
	c.api.kill()
	c.etcd.kill()
	if err := os.RemoveAll(c.data); err != nil {
		return err
	}
	if err := os.CopyFS(c.data, os.DirFS(filepath.Join(snapshot, "data"))); err != nil {
		return err
	}
	if err := os.Chmod(c.data, 0o700); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}
