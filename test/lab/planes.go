package lab

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Planes are control planes by name.
type Planes map[string]*ControlPlane

// StartPlanes starts several at once. On an error nothing is left running.
func StartPlanes(ctx context.Context, options func(name string) Options, names ...string) (Planes, error) {
	if _, err := Find(ctx); err != nil { // built once, before several ask for it
		return nil, err
	}
	started, errs := make([]*ControlPlane, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { started[i], errs[i] = Start(ctx, options(name)) })
	}
	all.Wait()
	planes := Planes{}
	for i, c := range started {
		if c != nil {
			planes[names[i]] = c
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		planes.Stop()
		return nil, err
	}
	return planes, nil
}

// Stop ends them all.
func (p Planes) Stop() {
	var all sync.WaitGroup
	for _, c := range p {
		all.Go(c.Stop)
	}
	all.Wait()
}

// WriteKubeconfig makes what an admin of all of them has: a kubeconfig with a context for each, of its name, and no
// current one.
func (p Planes) WriteKubeconfig(file string) error {
	all := clientcmdapi.NewConfig()
	for name, c := range p {
		one, err := clientcmd.LoadFromFile(c.Kubeconfig())
		if err != nil {
			return err
		}
		in := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[in.Cluster], one.AuthInfos[in.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	return clientcmd.WriteToFile(*all, file)
}
