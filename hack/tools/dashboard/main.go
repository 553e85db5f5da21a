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

// Dashboard draws the panels of a Grafana dashboard from what a Prometheus has. docs/dashboard.svg
// is from it: Grafana itself is under the AGPL, so no build or test of this project installs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"math"
	"os"
	"regexp"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// dashboard has what is drawn of Grafana's model.
type dashboard struct {
	Panels []panel
}

type panel struct {
	Title string
	// GridPos is in units of the dashboard's grid, 24 wide.
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ Expr, LegendFormat string }
}

func main() {
	prometheus := flag.String("prometheus", "http://127.0.0.1:9090", "the address of Prometheus")
	from := flag.String("dashboard", "examples/monitoring/dashboard.json", "the dashboard's file")
	to := flag.String("o", "docs/dashboard.svg", "the picture's file")
	last := flag.Duration("last", 15*time.Minute, "the time that is drawn, until now")
	flag.Parse()
	if err := run(context.Background(), *prometheus, *from, *to, *last); err != nil {
		fmt.Fprintf(os.Stderr, "dashboard: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address, from, to string, last time.Duration) error {
	client, err := api.NewClient(api.Config{Address: address})
	if err != nil {
		return err
	}
	prometheus := promv1.NewAPI(client)
	plugins.RegisterDefaultPlugins()
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// An empty list of errors is no nil.
	if err := new(grafana.Dashboard).UnmarshalJSONStrict(data); err != nil && err.Error() != "" {
		return fmt.Errorf("%s is no dashboard of Grafana: %w", from, err)
	}
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if len(d.Panels) == 0 {
		return fmt.Errorf("%s has no panels", from)
	}
	height := 0
	for _, p := range d.Panels {
		height = max(height, p.GridPos.Y+p.GridPos.H)
	}
	const unitX, unitY = 1.1 * vg.Centimeter, 0.6 * vg.Centimeter
	canvas := vgsvg.New(24*unitX, vg.Length(height)*unitY)
	whole := draw.New(canvas)
	whole.FillPolygon(color.White, []vg.Point{whole.Min, {X: whole.Max.X, Y: whole.Min.Y}, whole.Max, {X: whole.Min.X, Y: whole.Max.Y}})
	now := time.Now()
	for _, p := range d.Panels {
		pl, err := p.plot(ctx, prometheus, now.Add(-last), now)
		if err != nil {
			return fmt.Errorf("panel %q: %w", p.Title, err)
		}
		left, bottom := vg.Length(p.GridPos.X)*unitX, vg.Length(height-p.GridPos.Y-p.GridPos.H)*unitY
		const margin = 0.2 * vg.Centimeter
		pl.Draw(draw.Canvas{Canvas: canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left + margin, Y: bottom + margin},
			Max: vg.Point{X: left + vg.Length(p.GridPos.W)*unitX - margin, Y: bottom + vg.Length(p.GridPos.H)*unitY - margin},
		}})
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}

// plot asks for the data of all queries of the panel.
func (p panel) plot(ctx context.Context, prometheus promv1.API, start, end time.Time) (*plot.Plot, error) {
	pl := plot.New()
	pl.Title.Text = p.Title
	pl.X.Tick.Marker = plot.TimeTicks{Format: "15:04", Time: plot.UTCUnixTime}
	pl.X.Min, pl.X.Max = float64(start.Unix()), float64(end.Unix())
	if p.FieldConfig.Defaults.Unit == "ops" {
		pl.Y.Label.Text = "per second"
	}
	pl.Legend.Top, pl.Legend.Left, pl.Legend.Padding = true, true, vg.Points(1)
	pl.Title.TextStyle.Font.Size, pl.Legend.TextStyle.Font.Size = vg.Points(11), vg.Points(9)
	for _, axis := range []*plot.Axis{&pl.X, &pl.Y} {
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = vg.Points(9), vg.Points(9)
	}
	pl.Add(plotter.NewGrid())
	top, n := 0.0, 0
	for _, target := range p.Targets {
		all, err := query(ctx, prometheus, target.Expr, start, end)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", target.Expr, err)
		}
		for _, s := range all {
			xys, highest := points(s)
			line, err := plotter.NewLine(xys)
			if err != nil {
				return nil, err
			}
			line.Color, line.Width = plotutil.Color(n), vg.Points(1.5)
			pl.Add(line)
			pl.Legend.Add(name(s, target.LegendFormat), line)
			top = max(top, highest)
			n++
		}
	}
	if n == 0 {
		pl.Title.Text += ": no data"
		pl.Title.TextStyle.Color = color.Gray{Y: 128}
		pl.Y.Tick.Marker = plot.ConstantTicks(nil)
	}
	// Room for the legend.
	pl.Y.Min, pl.Y.Max = 0, max(top, 1e-3)*(1.1+0.12*float64(n))
	return pl, nil
}

// points are those that are numbers.
func points(s *model.SampleStream) (points plotter.XYs, highest float64) {
	for _, v := range s.Values {
		y := float64(v.Value)
		if math.IsNaN(y) || math.IsInf(y, 0) {
			continue
		}
		points = append(points, plotter.XY{X: float64(v.Timestamp.Unix()), Y: y})
		highest = max(highest, y)
	}
	return points, highest
}

var label = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// name is what Grafana shows in the legend.
func name(s *model.SampleStream, format string) string {
	if format == "" {
		return s.Metric.String()
	}
	return label.ReplaceAllStringFunc(format, func(m string) string {
		return string(s.Metric[model.LabelName(label.FindStringSubmatch(m)[1])])
	})
}

// query returns the series of a range of time.
func query(ctx context.Context, api promv1.API, expr string, start, end time.Time) (model.Matrix, error) {
	const steps = 240
	step := max(time.Second, (end.Sub(start) / steps).Round(time.Second))
	value, _, err := api.QueryRange(ctx, expr, promv1.Range{Start: start, End: end, Step: step})
	if err != nil {
		return nil, err
	}
	matrix, isMatrix := value.(model.Matrix)
	if !isMatrix {
		return nil, fmt.Errorf("no series: %s", value.Type())
	}
	return matrix, nil
}
