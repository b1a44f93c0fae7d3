package httpapi

import (
	"errors"
	"net/http"

	"github.com/berth-dev/berth/api"
)

// statusOf maps codes to HTTP status.
func statusOf(code api.Code) int {
	switch code {
	case api.CodeInvalid:
		return http.StatusBadRequest
	case api.CodeNotFound:
		return http.StatusNotFound
	case api.CodeConflict, api.CodeInUse, api.CodeIdentityInUse, api.CodeWrongCluster:
		return http.StatusConflict
	case api.CodeForbidden:
		return http.StatusForbidden
	case api.CodeStaleSession:
		return http.StatusUnauthorized
	case api.CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case api.CodeGone:
		return http.StatusGone
	case api.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case api.CodeUnavailable, api.CodeRolledBack, api.CodeRecovering:
		return http.StatusServiceUnavailable
	case api.CodeUncertain:
		return http.StatusGatewayTimeout
	case api.CodeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// toAPI is what a caller gets to see of an error.
func toAPI(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return errFault()
}

func errFault() *api.Error {
	return api.Errorf(api.CodeInternal, "a fault of Berth kept this from being done; the server's log says more")
}
