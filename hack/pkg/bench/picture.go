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
	"fmt"
	"math"
	"slices"
	"strings"
)

// A picture has panels beside each other, all with the same scale of ratios.
const (
	panelWidth, panelHeight = 380, 260
	marginLeft, marginTop   = 60, 40
	marginRight             = 30
	pictureHeight           = marginTop + panelHeight + 110
)

type point struct{ x, y float64 }

// line is what one way to share a claim does.
type line struct {
	name, color string
	points      []point
}

type panel struct {
	title, axis string
	lines       []line
}

// Picture shows the throughput beside pods without a claim, over pods and over nodes.
func (results Results) Picture() string {
	ways := []struct {
		name, color, run string
		patched          bool
	}{
		{"spec.reservedFor, patched", "#0969da", SharedClaimForWorkload, true},
		{"no spec.reservedFor, patched", "#1a7f37", SharedClaim, true},
		{"PodGroup, unpatched", "#bc4c00", SharedClaimsForPodGroups, false},
		{"no spec.reservedFor, unpatched", "#6e7781", SharedClaim, false},
	}
	pods := panel{title: "Throughput beside pods without a claim: 100 nodes", axis: "pods"}
	nodes := panel{title: "Throughput beside pods without a claim: 10,000 pods", axis: "nodes"}
	for _, way := range ways {
		overPods, overNodes := line{name: way.name, color: way.color}, line{name: way.name, color: way.color}
		for _, r := range results {
			if r.Case != way.run || r.Patched != way.patched || r.Groups > 1 {
				continue
			}
			y, ok := ratio(r, results.base(r.Run))
			if !ok {
				continue
			}
			if r.Nodes == 100 {
				overPods.points = append(overPods.points, point{float64(r.Pods), y})
			}
			if r.Pods == 10000 {
				overNodes.points = append(overNodes.points, point{float64(r.Nodes), y})
			}
		}
		pods.lines, nodes.lines = append(pods.lines, overPods), append(nodes.lines, overNodes)
	}
	return draw("Throughput beside pods without a claim", pods, nodes)
}

// draw writes SVG. The horizontal axes are logarithmic.
func draw(title string, panels ...panel) string {
	var b strings.Builder
	width := len(panels) * (marginLeft + panelWidth + marginRight)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`+"\n", width, pictureHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n", title)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i*(marginLeft+panelWidth+marginRight)+marginLeft, marginTop)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	// The lines are the same in all panels.
	for i, l := range panels[0].lines {
		x, y := marginLeft+i%2*width/2, marginTop+panelHeight+60+i/2*22
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n", x, y, x+24, y, l.color, x+32, y+4, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p panel) draw(b *strings.Builder) {
	text := func(x, y float64, anchor, text string) {
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, text)
	}
	text(0, -16, "start", p.title)
	var xs []float64
	for _, l := range p.lines {
		for _, at := range l.points {
			xs = append(xs, at.x)
		}
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	if len(xs) == 0 {
		text(panelWidth/2, panelHeight/2, "middle", "not measured")
		return
	}
	const top = 1.2
	y := func(ratio float64) float64 { return panelHeight * (1 - min(ratio, top)/top) }
	low, high := math.Log(xs[0]), math.Log(xs[len(xs)-1])
	x := func(value float64) float64 {
		if low == high {
			return panelWidth / 2
		}
		return panelWidth * (math.Log(value) - low) / (high - low)
	}
	for i := range 7 {
		ratio := float64(i) / 5
		fmt.Fprintf(b, `<line x1="0" y1="%.1f" x2="%d" y2="%.1f" stroke="#d0d7de"/>`+"\n", y(ratio), panelWidth, y(ratio))
		text(-8, y(ratio)+4, "end", fmt.Sprintf("%.1f", ratio))
	}
	for _, value := range xs {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d0d7de"/>`+"\n", x(value), panelHeight, x(value), panelHeight+5)
		text(x(value), panelHeight+20, "middle", thousands(int(value)))
	}
	text(panelWidth/2, panelHeight+40, "middle", p.axis)
	for _, l := range p.lines {
		slices.SortFunc(l.points, func(a, b point) int { return int(a.x - b.x) })
		var at []string
		for _, point := range l.points {
			at = append(at, fmt.Sprintf("%.1f,%.1f", x(point.x), y(point.y)))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s: %.3f</title></circle>`+"\n", x(point.x), y(point.y), l.color, l.name, point.y)
		}
		if len(at) > 1 {
			fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(at, " "), l.color)
		}
	}
}
