package kube

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
)

// sink takes what client-go logs about our watches. What matters of it health says once and in words of ours; the rest is for
// debugging.
type sink struct{ values string }

// Init implements logr.LogSink.
func (sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (sink) Enabled(level int) bool { return level == 0 }

// Info implements logr.LogSink.
func (s sink) Info(_ int, msg string, keysAndValues ...any) {
	log.Debugf("%s%s%s", msg, s.values, pairs(keysAndValues))
}

// Error implements logr.LogSink.
func (s sink) Error(err error, msg string, keysAndValues ...any) {
	log.Debugf("%s: %v%s%s", msg, err, s.values, pairs(keysAndValues))
}

// WithValues implements logr.LogSink.
func (s sink) WithValues(keysAndValues ...any) logr.LogSink {
	return sink{s.values + pairs(keysAndValues)}
}

// WithName implements logr.LogSink.
func (s sink) WithName(string) logr.LogSink { return s }

func pairs(keysAndValues []any) string {
	var b strings.Builder
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		fmt.Fprintf(&b, " %v=%v", keysAndValues[i], keysAndValues[i+1])
	}
	return b.String()
}
