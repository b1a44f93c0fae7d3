package spec

import "regexp"

// rewrites turn what a mend shows in HCL into JSON, in this order.
var rewrites = []struct {
	hcl  *regexp.Regexp
	json string
}{
	{regexp.MustCompile(`, without the equals sign$`), ``},
	{regexp.MustCompile(`( )(\w+) "name" \{ \.\.\. \}`), `$1"$2": {"name": { ... }}`},
	{regexp.MustCompile(`( )(\w+) "name" \{ (.*) \}`), `$1"$2": {"name": {$3}}`},
	{regexp.MustCompile(`(\w+) = `), `"$1": `},
	{regexp.MustCompile(`("[^"]*") = `), `$1: `},
	{regexp.MustCompile(`( )(\w+) \{ (.*) \}`), `$1"$2": {$3}`},
	{regexp.MustCompile(`(\{)(\w+) \{ (.*) \}`), `$1"$2": {$3}`},
	{regexp.MustCompile(`" "(\w+)":`), `", "$1":`},
}

// inJSON is a mend for the writer of a JSON file.
func inJSON(mend string) string {
	for _, r := range rewrites {
		mend = r.hcl.ReplaceAllString(mend, r.json)
	}
	return mend
}
