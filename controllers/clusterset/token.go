package clusterset

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Token has claims of a member's token (RFC 7519, section 4.1). They are not verified here; only the hub does that.
type Token struct {
	Subject string `json:"sub"`
	Issued  int64  `json:"iat"` // Unix seconds
	Expires int64  `json:"exp"`
}

// ParseToken returns the claims of a JSON Web Token. It fails if the token never expires.
func ParseToken(token string) (t Token, err error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return t, errors.New("no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &t)
	}
	if err != nil {
		return Token{}, fmt.Errorf("no JSON Web Token: %w", err)
	}
	if t.Expires <= t.Issued {
		return Token{}, errors.New("the token has no lifetime")
	}
	return t, nil
}

// Lifetime returns the time from issue to expiry.
func (t Token) Lifetime() time.Duration { return time.Duration(t.Expires-t.Issued) * time.Second }

// Account returns the token's ServiceAccount. Both results are empty if the token is not of a ServiceAccount.
func (t Token) Account() (namespace, name string) {
	account, ok := strings.CutPrefix(t.Subject, "system:serviceaccount:")
	if !ok {
		return "", ""
	}
	namespace, name, _ = strings.Cut(account, ":")
	return namespace, name
}
