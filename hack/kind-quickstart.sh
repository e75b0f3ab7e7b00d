#!/usr/bin/env bash
# From nothing to a curl that a Pod of another kind cluster answers. It types the commands of docs/start.md, so the page
# explains each step.
#
#   hack/kind-quickstart.sh          up, then walk; leaves the clusters running
#   hack/kind-quickstart.sh up       two kind clusters, routes between their Pods, our images
#   hack/kind-quickstart.sh walk     docs/start.md to step 5, in the contexts east and west
#   hack/kind-quickstart.sh down     deletes the clusters
#
# It needs kind, docker, kubectl and Go. Afterwards: export KUBECONFIG=$PWD/bin/kind.kubeconfig
# `make e2e` runs walk on real nodes. up and down have not been run yet: please report what you see.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/bin:$PATH

up() {
	make image build
	export KUBECONFIG=$PWD/bin/kind.kubeconfig
	local number=1 name other
	for name in east west; do
		# Pod ranges must differ. Service ranges may be the same.
		kind create cluster --name $name --wait 2m --config - <<-YAML
			{kind: Cluster, apiVersion: kind.x-k8s.io/v1alpha4, networking: {podSubnet: 10.$((200 + number)).0.0/16}}
		YAML
		kubectl config rename-context kind-$name $name
		for archive in bin/image/{coredns,clusterset-controller}-docker-$(go env GOARCH).tar; do
			kind load image-archive $archive --name $name
		done
		number=$((number + 1))
	done
	docker exec east-control-plane ip route replace 10.202.0.0/16 via "$(address west)"
	docker exec west-control-plane ip route replace 10.201.0.0/16 via "$(address east)"
}

# address is a node's in the network that all nodes of kind share.
address() { docker inspect -f '{{.NetworkSettings.Networks.kind.IPAddress}}' "$1-control-plane"; }

walk() {
	local block attempt hub=${HUB_SERVER:-} image registry version
	[ -n "${KUBECONFIG:-}" ] || export KUBECONFIG=$PWD/bin/kind.kubeconfig
	# Pods do not reach the address in kind's kubeconfig, which is this machine's loopback.
	[ -n "$hub" ] || hub=https://$(address east):6443
	# The name that make image gave.
	image=$(tar -xOf "${IMAGES:-bin/image}/coredns-docker-$(go env GOARCH).tar" manifest.json |
		grep -o '"[^"]*/coredns:[^"]*"' | tr -d '"')
	registry=${image%/coredns:*} version=${image##*:}
	while IFS= read -r -d '' -u 3 block; do
		block=${block//REGISTRY/$registry}
		block=${block//VERSION/$version}
		block=${block//--cluster-id=/--hub-server=$hub --cluster-id=}
		printf '\n$ %s' "$block"
		if [[ $block != *curl* ]]; then
			eval "$block"
			continue
		fi
		for attempt in {1..60}; do # who asks a name waits for it
			! eval "$block" || break
			[ "$attempt" -lt 60 ] || return 1
			sleep 2
		done
		echo
	done 3< <(blocks)
}

# blocks prints the commands of docs/start.md that walk types, each ended by a zero byte.
blocks() {
	awk '/^## / { part = $2 + 0 }
		/^~~~ sh$/ { open = 1; text = ""; next }
		/^~~~$/ && open { open = 0; if (part <= 5) printf "%s%c", text, 0 }
		open { text = text $0 "\n" }' docs/start.md
}

down() {
	kind delete cluster --name east
	kind delete cluster --name west
	rm -f bin/kind.kubeconfig # else the next up finds its contexts there
}

case ${1:-all} in
	all)
		up
		walk
		;;
	up | walk | down) "$1" ;;
	*) sed -n '2,/^set/p' "$0" | grep '^#' && exit 2 ;;
esac
