package clusterset

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Token is what a member's credentials say of themselves, as their issuer wrote it (RFC 7519 §4.1). The hub is who checks it: nothing may
// be granted on these words.
type Token struct {
	Subject string `json:"sub"`
	Issued  int64  `json:"iat"` // Unix seconds
	Expires int64  `json:"exp"`
}

// ParseToken reads a JSON Web Token, which has a lifetime.
func ParseToken(token string) (t Token, err error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return t, errors.New("it is no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &t)
	}
	if err != nil {
		return Token{}, fmt.Errorf("it is no JSON Web Token: %w", err)
	}
	if t.Expires <= t.Issued {
		return Token{}, errors.New("it has no lifetime")
	}
	return t, nil
}

// Lifetime is that of a token that was just made.
func (t Token) Lifetime() time.Duration { return time.Duration(t.Expires-t.Issued) * time.Second }

// Account is the ServiceAccount whose token it is; both are empty where it is somebody else's.
func (t Token) Account() (namespace, name string) {
	account, ok := strings.CutPrefix(t.Subject, "system:serviceaccount:")
	if !ok {
		return "", ""
	}
	namespace, name, _ = strings.Cut(account, ":")
	return namespace, name
}
