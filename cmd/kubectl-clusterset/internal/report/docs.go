package report

// Where remedies link to.
const (
	Docs = "https://github.com/clusterset-dns/clusterset-dns/blob/main/docs/"

	DocsImages    = Docs + "start.md#1-images"
	DocsNetwork   = Docs + "start.md#0-what-must-be-true-of-the-network-first"
	DocsReverse   = Docs + "corefile.md#reverse-names"
	DocsNodeLocal = Docs + "corefile.md#nodelocal-dns"
	DocsTokens    = Docs + "operate.md#tokens"
	DocsMoving    = Docs + "operate.md#other-changes"
	DocsLeaving   = Docs + "operate.md#leaving"
	DocsRights    = Docs + "reference.md#rights"
)
