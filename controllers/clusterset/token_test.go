package clusterset

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestTokens(t *testing.T) {
	jwt := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	const good = `{"sub":"system:serviceaccount:set:mcs-east","iat":1000000,"exp":1086400}`
	token, err := ParseToken(jwt(good) + "\n") // files end so
	if err != nil {
		t.Fatal(err)
	}
	if ns, name := token.Account(); ns != "set" || name != "mcs-east" || token.Lifetime() != 24*time.Hour {
		t.Errorf("it is %s/%s's, of %v", ns, name, token.Lifetime())
	}
	if ns, name := (Token{Subject: "admin:of:all"}).Account(); ns != "" || name != "" {
		t.Errorf("a user's token is that of %s/%s", ns, name)
	}
	for name, c := range map[string]struct{ token, want string }{
		"nothing":         {"", "no JSON Web Token"},
		"two parts":       {"abc.def", "no JSON Web Token"},
		"no JSON":         {jwt("iat"), "no JSON Web Token"},
		"not base64":      {"a.*.c", "no JSON Web Token"},
		"without an end":  {jwt(`{"iat":1000000}`), "no lifetime"},
		"ends before":     {jwt(`{"iat":1000000,"exp":999999}`), "no lifetime"},
		"a number's text": {jwt(`{"iat":"1000000","exp":1086400}`), "no JSON Web Token"},
	} {
		got, err := ParseToken(c.token)
		if err == nil || !strings.Contains(err.Error(), c.want) || got != (Token{}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
