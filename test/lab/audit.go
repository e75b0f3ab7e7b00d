package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// ReadAudit returns the Events of AuditLog, each as much of audit.k8s.io/v1 as T takes.
func ReadAudit[T any](c *ControlPlane) (out []T, err error) {
	f, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := json.NewDecoder(f); ; {
		var e T
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the last line may be under way
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.AuditLog(), err)
		}
		out = append(out, e)
	}
}
