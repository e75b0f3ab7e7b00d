package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Backdate makes every custom object of a kind (group/resource) older, in etcd, since an API server lets nobody choose
// a creationTimestamp. Watches show it as a change. An object that somebody writes at the same time may lose that
// write.
func (c *ControlPlane) Backdate(ctx context.Context, kind string, by time.Duration) error {
	prefix := []byte("/registry/" + kind + "/")
	end := bytes.Clone(prefix)
	end[len(end)-1]++
	var found struct {
		KVs []struct{ Key, Value []byte } `json:"kvs"`
	}
	if err := c.askEtcd(ctx, "range", map[string][]byte{"key": prefix, "range_end": end}, &found); err != nil {
		return err
	}
	if len(found.KVs) == 0 {
		return fmt.Errorf("etcd has nothing below %s", prefix)
	}
	for _, kv := range found.KVs {
		var object map[string]any
		if err := json.Unmarshal(kv.Value, &object); err != nil {
			return fmt.Errorf("%s: %w", kv.Key, err)
		}
		metadata, _ := object["metadata"].(map[string]any)
		text, _ := metadata["creationTimestamp"].(string)
		created, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return fmt.Errorf("%s: %w", kv.Key, err)
		}
		metadata["creationTimestamp"] = created.Add(-by).UTC().Format(time.RFC3339)
		value, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if err := c.askEtcd(ctx, "put", map[string][]byte{"key": kv.Key, "value": value}, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// askEtcd calls its key-value API in JSON, where bytes are base64.
func (c *ControlPlane) askEtcd(ctx context.Context, what string, question map[string][]byte, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	url := "http://" + c.etcdPort.Addr() + "/v3/kv/" + what
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %w: %s", resp.Status, err, text)
	}
	return json.Unmarshal(text, answer)
}
