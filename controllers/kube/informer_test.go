package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// TestAnInformerComesBackSoon from an API server that starts again and again, and each time knows no history, or fails, at
// once or late: it lists within seconds, but not at once, and behind a watch that has lasted as soon as the first time.
func TestAnInformerComesBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		const slow, last = 9, 20
		var lists []time.Time
		failing := apierrors.NewInternalError(errors.New("etcd is away"))
		ended := make(chan struct{})
		i := Informer(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				lists = append(lists, time.Now())
				if len(lists)%3 == 0 {
					if len(lists) == slow {
						time.Sleep(time.Minute)
					}
					return nil, failing
				}
				if len(lists) == last+2 {
					close(ended)
				}
				return &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}}, nil
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil {
					return nil, apierrors.NewBadRequest("no such streams here")
				}
				w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
				expire := func() { w.Error(&apierrors.NewResourceExpired("too old").ErrStatus) }
				if len(lists) == last {
					time.AfterFunc(time.Minute, expire)
				} else {
					expire()
				}
				return w, nil
			},
		}, &corev1.Namespace{}, 0, cache.Indexers{})
		began := time.Now()
		go i.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) || time.Since(began) > time.Second {
			t.Errorf("it has synced after %v", time.Since(began))
		}
		<-ended
		if len(i.GetStore().List()) != 1 {
			t.Errorf("it holds %v", i.GetStore().List())
		}
		for n := 1; n < len(lists); n++ {
			least, most := 500*time.Millisecond, 4500*time.Millisecond
			switch {
			case n == slow:
				least, most = time.Minute+3*time.Second, time.Minute+most
			case n > 6 && n < last:
				least = 3 * time.Second
			case n == last:
				least, most = time.Minute+least, time.Minute+750*time.Millisecond
			}
			if pause := lists[n].Sub(lists[n-1]); pause < least || pause > most {
				t.Errorf("list %d came after %v, want %v to %v", n+1, pause, least, most)
			}
		}
	})
}
