package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
)

//go:embed index.html style.css app.js
var files embed.FS

func file(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// explained is how many names a file has the explanation of: the worst come first.
const explained = 500

// document is what a file has beside the page, and what the page gets piece by piece from a server.
type document struct {
	View      *View          `json:"view"`
	At        time.Time      `json:"at"` // by the hub's clock
	Explained map[string]any `json:"explained"`
}

// File returns the page as one file, for a ticket. It loads nothing. The path of a kubeconfig is not in it.
func File(w *check.World) ([]byte, error) {
	s := *w.Snapshot
	s.Flags.Kubeconfig, s.Flags.HubKubeconfig = "", ""
	w = &check.World{Snapshot: &s, Names: w.Names}
	d := document{View: Look(w, check.Run(w)), At: w.Now(), Explained: map[string]any{}}
	for i := range min(len(d.View.Names), explained) {
		name := d.View.Names[i].Name
		report, err := Explain(w, name)
		if err != nil {
			return nil, err
		}
		d.Explained[name] = report
	}
	data, err := json.Marshal(d) // which escapes what could end the script
	if err != nil {
		return nil, err
	}
	style, script := "\n"+file("style.css"), "\n"+file("app.js")
	policy := `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; ` +
		`img-src data:; style-src ` + hash(style) + `; script-src ` + hash(script) + `">`
	page := file("index.html")
	for tag, with := range map[string]string{
		`<meta charset="utf-8">`:                   `<meta charset="utf-8">` + "\n" + policy,
		`<link rel="stylesheet" href="style.css">`: "<style>" + style + "</style>",
		`<script src="app.js" defer></script>`: `<script type="application/json" id="data">` + string(data) +
			"</script>\n<script>" + script + "</script>",
	} {
		if strings.Count(page, tag) != 1 {
			return nil, errors.New("index.html does not have once: " + tag)
		}
		page = strings.Replace(page, tag, with, 1)
	}
	return bytes.TrimSpace([]byte(page)), nil
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
