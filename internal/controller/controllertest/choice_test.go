package controllertest_test

import "pgregory.net/rapid"

// Rapid's own choices favour what is small and comes first. That shrinks well
// and never gets deep, so choices are made of single bits.

func number(t *rapid.T, label string, below int) int {
	return rapid.Custom(func(t *rapid.T) int {
		n := 0
		for range 8 {
			n *= 2
			if rapid.Bool().Draw(t, "bit") {
				n++
			}
		}
		return n % below
	}).Draw(t, label)
}

func oneOf[T any](t *rapid.T, label string, of ...T) T { return of[number(t, label, len(of))] }

// seldom is true once in n times.
func seldom(t *rapid.T, label string, n int) bool { return number(t, label, n) == n-1 }
