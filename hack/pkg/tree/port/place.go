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

package port

import (
	"os"

	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

// The names of the files, and with them the releases that they hold for.

// alone is the range of the new release alone. That of the newest one has no end.
func (p *Port) alone() *ledger.Range {
	if last := p.ledger.Releases[len(p.ledger.Releases)-1]; last.Name == p.To.Name {
		return &ledger.Range{From: p.To.Name}
	}
	return &ledger.Range{From: p.To.Name, To: p.To.Name}
}

// hold makes a file hold for the new release, too, and returns its name: it gets a
// wider range, or a copy if others hold for the releases in between.
func (p *Port) hold(e overlay.Entry) (string, error) {
	siblings := overlay.Siblings(p.entries, e)
	holder, err := overlay.Holder(siblings, p.To.Name)
	if err != nil {
		return "", err
	}
	if holder != nil && holder.Source == e.Source {
		return e.Source, nil
	}
	here := e.Qualified(p.alone())
	if joined, ok := overlay.Join(append(siblings, here), e, here, p.ledger); ok {
		return joined.Source, p.move(e.Source, joined.Source)
	}
	return here.Source, p.copy(e.Source, here.Source)
}

// replace writes a file for the new release, in place of the one that holds there.
func (p *Port) replace(e overlay.Entry, content []byte) (string, error) {
	here := e.Qualified(p.alone())
	holder, err := overlay.Holder(overlay.Siblings(p.entries, e), p.To.Name)
	if err != nil {
		return "", err
	}
	if holder != nil && holder.Only != nil && holder.Source != here.Source {
		if err := p.shrink(*holder); err != nil {
			return "", err
		}
	}
	if err := p.write(here.Source, content); err != nil {
		return "", err
	}
	return here.Source, p.scan()
}

// drop makes none of the siblings of a file hold for the new release.
func (p *Port) drop(e overlay.Entry) error {
	for {
		holder, err := overlay.Holder(overlay.Siblings(p.entries, e), p.To.Name)
		if err != nil || holder == nil {
			return err
		}
		if err := p.shrink(*holder); err != nil {
			return err
		}
	}
}

// shrink makes a file hold for all its releases but the new one: it is renamed, and
// copied if there are some before and some after it.
func (p *Port) shrink(e overlay.Entry) error {
	content, err := p.read(e.Source)
	if err != nil {
		return err
	}
	ranges, err := p.rest(e)
	if err != nil {
		return err
	}
	if err := os.Remove(p.file(e.Source)); err != nil {
		return err
	}
	for _, only := range ranges {
		if err := p.write(e.Qualified(&only).Source, content); err != nil {
			return err
		}
	}
	return p.scan()
}

// rest are the releases that a file holds for, without the new one.
func (p *Port) rest(e overlay.Entry) ([]ledger.Range, error) {
	siblings := overlay.Siblings(p.entries, e)
	var ranges []ledger.Range
	goesOn := false
	for _, r := range p.ledger.Releases {
		holder, err := overlay.Holder(siblings, r.Name)
		if err != nil {
			return nil, err
		}
		holds := holder != nil && holder.Source == e.Source && r.Name != p.To.Name
		switch {
		case holds && goesOn:
			ranges[len(ranges)-1].To = r.Name
		case holds:
			ranges = append(ranges, ledger.Range{From: r.Name, To: r.Name})
		}
		goesOn = holds
	}
	if goesOn && (e.Only == nil || e.Only.To == "") {
		ranges[len(ranges)-1].To = ""
	}
	return ranges, nil
}

func (p *Port) move(from, to string) error {
	if err := os.Rename(p.file(from), p.file(to)); err != nil {
		return err
	}
	return p.scan()
}

func (p *Port) copy(from, to string) error {
	content, err := p.read(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(p.file(from))
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.file(to), content, info.Mode().Perm()); err != nil {
		return err
	}
	return p.scan()
}
