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

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// RecordFile has what docs/benchmark.md shows, and PictureFile is shown there.
const (
	RecordFile  = "docs/benchmark.json"
	PictureFile = "docs/benchmark.svg"
)

// Record is all that one call of "carry bench" found.
type Record struct {
	// Version is what was measured, Beside what it was compared with, and Machine where.
	Version string `json:"version"`
	Beside  string `json:"beside"`
	Machine string `json:"machine"`
	Date    string `json:"date"`

	Results       Results      `json:"results"`
	Claims        []Comparison `json:"claims,omitempty"`
	StatusWrites  []Comparison `json:"statusWrites,omitempty"`
	LargestStatus []Comparison `json:"largestStatus,omitempty"`
	HostileStatus []Comparison `json:"hostileStatus,omitempty"`
}

// ParseRecord reads a record.
func ParseRecord(data []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", RecordFile, err)
	}
	if r.Version == "" || len(r.Results) == 0 {
		return nil, errors.New(RecordFile + " has no results: make bench SAVE=1 writes it")
	}
	return &r, nil
}

// JSON is the record for a file.
func (r *Record) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", " ")
	return append(data, '\n'), err
}

// Update replaces what was measured again. The plan has all that the record is to have, in this order.
func (r *Record) Update(again *Record, plan []Run) error {
	if r.Version != again.Version || r.Beside != again.Beside || r.Machine != again.Machine {
		return fmt.Errorf("%s is of %s beside %s on %s, not of %s beside %s on %s: measure all again, without --only",
			RecordFile, r.Version, r.Beside, r.Machine, again.Version, again.Beside, again.Machine)
	}
	var results Results
	for _, run := range plan {
		result := again.Results.find(run)
		if result == nil {
			result = r.Results.find(run)
		}
		if result == nil {
			return fmt.Errorf("%s lacks %s: measure all again, without --only", RecordFile, run)
		}
		results = append(results, result)
	}
	r.Results = results
	for _, part := range []struct{ have, again *[]Comparison }{
		{&r.Claims, &again.Claims}, {&r.StatusWrites, &again.StatusWrites}, {&r.LargestStatus, &again.LargestStatus}, {&r.HostileStatus, &again.HostileStatus},
	} {
		if len(*part.again) > 0 {
			*part.have = *part.again
		}
	}
	return nil
}

// Markdown shows the record.
func (r *Record) Markdown() string {
	var parts []string
	add := func(table string) {
		if table != "" {
			parts = append(parts, table)
		}
	}
	add(fmt.Sprintf("%s beside %s, %s, on %s.\n", r.Version, r.Beside, r.Date, r.Machine))
	add(r.Results.Goals())
	if len(r.Claims) > 0 {
		add(ClaimsTable(r.Claims))
	}
	if len(r.StatusWrites) > 0 {
		add(StatusTable(r.StatusWrites))
	}
	if len(r.LargestStatus) > 0 {
		add(SizesTables(r.LargestStatus, r.HostileStatus))
	}
	if len(r.Results) > 0 {
		add(r.Results.Table())
	}
	return strings.Join(parts, "\n")
}
