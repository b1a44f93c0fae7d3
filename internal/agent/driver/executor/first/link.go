//go:build cgo

package first

import "C" // first.c
