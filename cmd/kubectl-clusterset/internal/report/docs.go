package report

// Where remedies link to.
const (
	docs = "https://github.com/clusterset-dns/clusterset-dns/blob/main/docs/"

	DocsImages     = docs + "start.md#1-images"
	DocsDNS        = docs + "start.md#3-dns"
	DocsNetwork    = docs + "start.md#0-what-must-be-true-of-the-network-first"
	DocsCorefile   = docs + "corefile.md"
	DocsReverse    = docs + "corefile.md#reverse-names"
	DocsNodeLocal  = docs + "corefile.md#nodelocal-dns"
	DocsMigrate    = docs + "migrate.md"
	DocsRanges     = docs + "operate.md#ranges-of-vips"
	DocsUpgrade    = docs + "operate.md#upgrading"
	DocsHubDeleted = docs + "troubleshoot.md#the-hub-controller-does-not-run"
	DocsLeaving    = docs + "operate.md#leaving"
	DocsRights     = docs + "reference.md#rights"
	DocsReach      = docs + "failover.md"
)
