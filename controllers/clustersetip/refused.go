package clustersetip

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// bar is why the API server would refuse a Service that it has refused before, whatever its addresses: no fence is opened for that at each
// retry, since ordinary Services would get in.
func (r *Room) bar(ctx context.Context, q kube.VIPRequest) error {
	r.mu.Lock()
	_, barred := r.barred[q.Service]
	r.mu.Unlock()
	if !barred || q.Try == nil {
		return nil
	}
	err := q.Try(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ofAddresses(err) {
		delete(r.barred, q.Service)
		return nil
	}
	r.barred[q.Service] = r.Now()
	r.count.failed(r.view, q.Families, nil, err)
	return err
}

// ofAddresses tells whether another attempt, perhaps with other addresses, may succeed though a Service was refused like this.
func ofAddresses(err error) bool {
	return !refused(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || allocator(err)
}

// allocator tells whether an error is of the API server's allocator, which calls some of them its own trouble.
func allocator(err error) bool { return strings.Contains(err.Error(), "failed to allocate") }

// answered tells whether it is known that a Service was not made. Where it is not, it may be there, and even without its IPAddress.
func answered(err error) bool { return refused(err) || allocator(err) }

// refused tells whether an API server has said for good that it made nothing. No answer does not, nor does one that tells of its own trouble.
func refused(err error) bool {
	var told apierrors.APIStatus
	return errors.As(err, &told) && told.Status().Code/100 == 4
}

// forbids tells whether an API server refuses an object for what it is, so that the same again is refused again. Policies may say so with
// nearly any code: a webhook that names none says 400.
func forbids(err error) bool {
	var told apierrors.APIStatus
	if !errors.As(err, &told) {
		return false
	}
	switch code := told.Status().Code; code {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests: // of the moment
		return false
	default:
		return code/100 == 4
	}
}
