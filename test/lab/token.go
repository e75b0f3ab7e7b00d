package lab

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Age is a token of a ServiceAccount as it would be at another time: by the key that this cluster signs tokens with,
// for the same account and lifetime, but with only so much left to live. API servers issue none for less than ten
// minutes; what they think of one that ends sooner is as true.
func (c *ControlPlane) Age(token string, left time.Duration) (aged string, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("it is no JSON Web Token")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var times struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	claims := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(text, &times), json.Unmarshal(text, &claims)); err != nil {
		return "", err
	}
	ends := time.Now().Add(left).Unix()
	begins := ends - (times.Expires - times.Issued)
	for name, value := range map[string]any{"exp": ends, "iat": begins, "nbf": begins, "jti": rand.Text()} {
		if claims[name], err = json.Marshal(value); err != nil {
			return "", err
		}
	}
	if text, err = json.Marshal(claims); err != nil {
		return "", err
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text) // the header names the key
	signature, err := c.sign(signed)
	return signed + "." + signature, err
}

// sign is ES256 (RFC 7518 §3.4).
func (c *ControlPlane) sign(text string) (string, error) {
	file, err := os.ReadFile(c.path("sa.key"))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(file)
	if block == nil {
		return "", fmt.Errorf("%s is no PEM", c.path("sa.key"))
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return base64.RawURLEncoding.EncodeToString(signature), nil
}
