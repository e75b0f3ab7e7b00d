package kube

import "sync"

// Together is Env's: few enough at a time that others' requests have their turn.
func Together(n int, do func(i int)) {
	const atOnce = 8
	var running sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for i := range n {
		turn <- struct{}{}
		running.Go(func() {
			defer func() { <-turn }()
			do(i)
		})
	}
	running.Wait()
}
