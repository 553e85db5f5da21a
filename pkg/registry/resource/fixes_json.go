/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package resource

import (
	"bytes"
	stdjson "encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// difference is how much a part of an object in an update differs from what is stored.
type difference int

const (
	// identical are all bytes of JSON, too.
	identical difference = iota
	// sameMeaning is JSON in another format.
	sameMeaning
	// reformatted is what JSON becomes that the server decodes and encodes, as it does when it
	// applies a patch. Clients do the same. That does not keep all: numbers are rounded to 64 bits,
	// keys that are there more than once, and what is not UTF-8, get lost.
	reformatted
	// otherMeaning is what was changed.
	otherMeaning
)

// onlyFormat returns true if nobody can have meant to change anything.
func (d difference) onlyFormat() bool { return d == sameMeaning || d == reformatted }

// compareFormat compares a part of an object with what is stored. It also returns whether there was
// JSON to compare. All that comes before it in the part is the same then.
func compareFormat[T any](part, stored T) (result difference, compared bool) {
	equalities := equality.Semantic.Copy()
	if err := equalities.AddFunc(func(a, b runtime.RawExtension) bool {
		compared = true
		result = max(result, compareJSON(a.Raw, b.Raw))
		return result != otherMeaning
	}); err != nil {
		// Not a function that compares: nothing is known to be the same.
		return otherMeaning, false
	}
	if !equalities.DeepEqual(part, stored) {
		return otherMeaning, compared
	}
	return result, compared
}

// compareJSON finds out whether JSON means what is stored: the same keys, in any order, with the
// same values. Numbers are the same if they are exactly the same, however they are written.
//
// The stored JSON is decoded and formatted once. Of the other one, which may be much larger,
// no more is decoded than can be the same.
func compareJSON(raw, stored []byte) difference {
	if bytes.Equal(raw, stored) {
		return identical
	}
	// A value has one byte at least.
	values := len(stored)
	storedValue, known := parseJSON(stored, values, len(stored))
	if known {
		values = storedValue.count
	}
	value, certain := parseJSON(raw, values, len(stored))
	if known && certain && value.equal(storedValue) {
		return sameMeaning
	}
	if known && !storedValue.inexact || value.kind == tooLarge {
		return otherMeaning
	}
	formatted, err := formatJSON(stored)
	if err != nil {
		return otherMeaning
	}
	if bytes.Equal(raw, formatted) {
		return reformatted
	}
	if formattedValue, known := parseJSON(formatted, values, len(stored)); known && certain && value.equal(formattedValue) {
		return reformatted
	}
	return otherMeaning
}

// formatJSON does what the server does when it applies a patch.
func formatJSON(raw []byte) ([]byte, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// jsonValue is a value of which the meaning is certain.
type jsonValue struct {
	// kind is the first byte of the value, "0" for a number, tooLarge.
	kind byte
	// inexact is set if the server may change the value when it formats it.
	inexact bool
	// name is the key of a member of an object.
	name string
	// text is a string without what is escaped, or a number as it is written.
	text string
	// values are those of a list, or of an object sorted by name.
	values []jsonValue
	// count is how many values it is, with those in it.
	count int
}

const (
	// tooLarge is the kind of what is more than was wanted.
	tooLarge byte = 'L'
	// maxEscaped is how much longer a text can get when it is written in another way: a byte
	// that is escaped has six, and 1e20 has 21 digits.
	maxEscaped = 6
	// maxDepth is that of encoding/json.
	maxDepth = 10000
)

// parseJSON decodes JSON. It says no to what is not valid, to what has no certain meaning because a key is
// there twice or bytes are not UTF-8, and to what cannot mean the same as JSON with so many values and of
// that size: it stops where it has seen as much.
func parseJSON(raw []byte, values, size int) (jsonValue, bool) {
	p := jsonParser{raw: raw, values: values, text: maxEscaped * size}
	value, ok := p.value()
	value.count = values - p.values
	if p.values < 0 || p.text < 0 {
		return jsonValue{kind: tooLarge}, false
	}
	return value, ok && p.next() == 0 && p.at == len(p.raw)
}

// jsonParser reads JSON.
type jsonParser struct {
	raw []byte
	at  int
	// values is how many values may still come, and text how many bytes of strings and numbers.
	values, text int
	depth        int
}

// next skips spaces, and returns what comes then. It is 0 at the end.
func (p *jsonParser) next() byte {
	for ; p.at < len(p.raw); p.at++ {
		switch c := p.raw[p.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// skip goes on behind a text which must be there.
func (p *jsonParser) skip(text string) bool {
	if !bytes.HasPrefix(p.raw[p.at:], []byte(text)) {
		return false
	}
	p.at += len(text)
	return true
}

func (p *jsonParser) value() (jsonValue, bool) {
	if p.values--; p.values < 0 {
		return jsonValue{}, false
	}
	switch kind := p.next(); kind {
	case '{':
		return p.collection(kind, '}')
	case '[':
		return p.collection(kind, ']')
	case '"':
		text, ok := p.readString()
		return jsonValue{kind: kind, text: text}, ok
	case 't':
		return jsonValue{kind: kind}, p.skip("true")
	case 'f':
		return jsonValue{kind: kind}, p.skip("false")
	case 'n':
		return jsonValue{kind: kind}, p.skip("null")
	default:
		text, ok := p.readNumber()
		return jsonValue{kind: '0', text: text, inexact: mayRound(text)}, ok
	}
}

// collection reads an object or a list.
func (p *jsonParser) collection(kind, end byte) (jsonValue, bool) {
	if p.depth++; p.depth > maxDepth {
		return jsonValue{}, false
	}
	collection := jsonValue{kind: kind}
	for p.at++; p.next() != end; {
		if len(collection.values) > 0 && !p.skip(",") {
			return jsonValue{}, false
		}
		var name string
		if kind == '{' {
			var ok bool
			if name, ok = p.readName(); !ok {
				return jsonValue{}, false
			}
		}
		value, ok := p.value()
		if !ok {
			return jsonValue{}, false
		}
		value.name = name
		collection.inexact = collection.inexact || value.inexact
		collection.values = append(collection.values, value)
	}
	p.at++
	p.depth--
	return collection, kind != '{' || collection.sort()
}

// readName reads the key of a member of an object, and the colon.
func (p *jsonParser) readName() (string, bool) {
	if p.next() != '"' {
		return "", false
	}
	name, ok := p.readString()
	if !ok || p.next() != ':' {
		return "", false
	}
	p.at++
	return name, true
}

// readString reads a string.
func (p *jsonParser) readString() (string, bool) {
	start, escaped := p.at, false
	for p.at++; ; p.at++ {
		if p.at-start > p.text {
			p.text = -1
			return "", false
		}
		if p.at >= len(p.raw) || p.raw[p.at] < ' ' {
			return "", false
		}
		if p.raw[p.at] == '"' {
			break
		}
		if p.raw[p.at] == '\\' {
			escaped = true
			p.at++
		}
	}
	p.at++
	p.text -= p.at - start
	text := string(p.raw[start+1 : p.at-1])
	if !utf8.ValidString(text) {
		return "", false
	}
	if escaped {
		if err := stdjson.Unmarshal(p.raw[start:p.at], &text); err != nil {
			return "", false
		}
	}
	// This is what half of a surrogate becomes, whichever it is.
	return text, !strings.ContainsRune(text, utf8.RuneError)
}

// readNumber reads a number.
func (p *jsonParser) readNumber() (string, bool) {
	start := p.at
	for p.at < len(p.raw) && strings.IndexByte("+-.0123456789eE", p.raw[p.at]) >= 0 {
		p.at++
	}
	p.text -= p.at - start
	number := p.raw[start:p.at]
	return string(number), p.text >= 0 && stdjson.Valid(number)
}

// sort puts the members of an object into the order of their names. It says no if one is there twice.
func (v jsonValue) sort() bool {
	slices.SortFunc(v.values, func(a, b jsonValue) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(v.values); i++ {
		if v.values[i-1].name == v.values[i].name {
			return false
		}
	}
	return true
}

// mayRound is false for numbers that a float64 keeps, which are most of them.
func mayRound(number string) bool {
	const digits = 15
	return len(number) > digits || strings.ContainsAny(number, "eE")
}

// equal compares values exactly.
func (v jsonValue) equal(other jsonValue) bool {
	if v.kind != other.kind || v.name != other.name || len(v.values) != len(other.values) {
		return false
	}
	if v.text != other.text && (v.kind != '0' || !equalNumbers(v.text, other.text)) {
		return false
	}
	for i := range v.values {
		if !v.values[i].equal(other.values[i]) {
			return false
		}
	}
	return true
}

// equalNumbers compares numbers as they are written in JSON.
func equalNumbers(a, b string) bool {
	decimalA, okA := parseDecimal(a)
	decimalB, okB := parseDecimal(b)
	return okA && okB && decimalA == decimalB
}

// decimal is a number. The digits begin and end with another one than 0.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// parseDecimal says no if the exponent is so large that nobody can mean it.
func parseDecimal(number string) (decimal, bool) {
	var d decimal
	number, d.negative = strings.CutPrefix(number, "-")
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		exponent, err := strconv.ParseInt(number[i+1:], 10, 32)
		if err != nil {
			return decimal{}, false
		}
		d.exponent, number = exponent, number[:i]
	}
	digits, fraction, _ := strings.Cut(number, ".")
	digits += fraction
	d.digits = strings.TrimRight(digits, "0")
	d.exponent += int64(len(digits) - len(d.digits) - len(fraction))
	d.digits = strings.TrimLeft(d.digits, "0")
	if d.digits == "" {
		// There is one zero, whatever its sign is.
		return decimal{}, true
	}
	return d, true
}
