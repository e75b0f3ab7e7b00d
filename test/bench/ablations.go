package main

const aboutAblations = "" +
	"The same as above, with and without what makes our program cheaper, and with knobs that it leaves alone. " +
	"**Stack**: the server starts a goroutine of 2 KiB of stack for each UDP question, and the runtime copies " +
	"that up to three times while plugins call each other; ours grows it once, at its start. **Profile**: `make " +
	"images` compiles with a profile of such questions (`make profile`), which inlines along the hot paths. " +
	"**GOGC=200** is a knob for you, in the environment of the Deployment: fewer garbage collections for more " +
	"memory. The image does not set it, because the heap of 100,000 imports would come near to the 170 MiB that " +
	"kubeadm allows. **multisocket** 2 is a knob for more cores than one; here it has one. GOAMD64=v3 was " +
	"measured on another machine only: 0.99 to 1.12, so no gain, and older CPUs would be lost. Peak memory is " +
	"that of the process after these questions. Ratios: with through without."

// ablations measures each thing that makes our program cheaper, and knobs.
func (b *bench) ablations() ([]row, error) {
	from := func(program string) setting {
		s := ourBlock
		s.name, s.program = program, program
		return s
	}
	us, collects, sockets := from(image), from(image), from(image)
	collects.name, collects.env = "GOGC=200", []string{"GOGC=200"}
	sockets.name, sockets.more = "multisocket 2", "multisocket 2"
	compared := []struct {
		what          string
		with, without setting
		bar           float64 // of A, NXDOMAIN and SRV; 0: none
	}{
		{"stack and profile", us, from(plain), 0.8},
		{"stack", us, from(ungrown), 0.9},
		{"profile", us, from(unprofiled), 0},
		{"GOGC=200", collects, us, 0},
		{"multisocket 2", sockets, us, 0},
	}
	all := []setting{us}
	for _, c := range compared {
		for _, s := range []setting{c.with, c.without} {
			if s.name != us.name {
				all = append(all, s)
			}
		}
	}
	servers, stop, err := b.settings(0, all...)
	if err != nil {
		return nil, err
	}
	defer stop()
	var cases []socketCase
	for _, c := range b.shippedWanted() {
		cases = append(cases, c.socketCase)
	}
	of, err := b.eachPerQuery(servers, cases, 1.5, all...)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, a := range compared {
		for _, c := range cases {
			x, y := of(a.with, c), of(a.without, c)
			r := row{
				What: a.what + ": " + c.what, Ours: microseconds(x), Theirs: microseconds(y), Ratio: number(x / y),
			}
			if a.bar > 0 && !c.edns {
				r = r.atMost(x/y, a.bar, "")
			}
			rows = append(rows, r)
		}
		x, err := servers[a.with.name].memory("VmHWM")
		if err != nil {
			return nil, err
		}
		y, err := servers[a.without.name].memory("VmHWM")
		if err != nil {
			return nil, err
		}
		r := row{What: a.what + ": peak memory", Ours: mib(x), Theirs: mib(y), Ratio: number(x / y)}
		if a.bar > 0 {
			r = r.atMost(x/y, 1.1, "")
		}
		rows = append(rows, r)
	}
	return rows, nil
}
