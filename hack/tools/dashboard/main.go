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
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	model "github.com/grafana/grafana-foundation-sdk/go/dashboard"
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

// series is a range of samples, as the API of Prometheus returns it.
type series struct {
	Metric map[string]string
	Values [][2]any
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

func run(ctx context.Context, prometheus, from, to string, last time.Duration) error {
	plugins.RegisterDefaultPlugins()
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// An empty list of errors is no nil.
	if err := new(model.Dashboard).UnmarshalJSONStrict(data); err != nil && err.Error() != "" {
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
func (p panel) plot(ctx context.Context, prometheus string, start, end time.Time) (*plot.Plot, error) {
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
			points, highest, err := s.points()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", target.Expr, err)
			}
			line, err := plotter.NewLine(points)
			if err != nil {
				return nil, err
			}
			line.Color, line.Width = plotutil.Color(n), vg.Points(1.5)
			pl.Add(line)
			pl.Legend.Add(s.name(target.LegendFormat), line)
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
func (s series) points() (points plotter.XYs, highest float64, err error) {
	for _, v := range s.Values {
		seconds, isNumber := v[0].(float64)
		text, isText := v[1].(string)
		if !isNumber || !isText {
			return nil, 0, fmt.Errorf("no sample of Prometheus: %v", v)
		}
		y, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("no sample of Prometheus: %w", err)
		}
		if math.IsNaN(y) || math.IsInf(y, 0) {
			continue
		}
		points = append(points, plotter.XY{X: seconds, Y: y})
		highest = max(highest, y)
	}
	return points, highest, nil
}

var label = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// name is what Grafana shows in the legend.
func (s series) name(format string) string {
	if format != "" {
		return label.ReplaceAllStringFunc(format, func(m string) string { return s.Metric[label.FindStringSubmatch(m)[1]] })
	}
	var labels []string
	for name, value := range s.Metric {
		if name != "__name__" {
			labels = append(labels, fmt.Sprintf("%s=%q", name, value))
		}
	}
	slices.Sort(labels)
	return s.Metric["__name__"] + "{" + strings.Join(labels, ", ") + "}"
}

// query returns the series of a range of time.
func query(ctx context.Context, prometheus, expr string, start, end time.Time) ([]series, error) {
	const steps = 240
	values := url.Values{
		"query": {expr},
		"start": {strconv.FormatInt(start.Unix(), 10)},
		"end":   {strconv.FormatInt(end.Unix(), 10)},
		"step":  {strconv.FormatFloat(max(1, end.Sub(start).Seconds()/steps), 'f', 0, 64)},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, prometheus+"/api/v1/query_range?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("the answer of Prometheus, HTTP status %s: %w", response.Status, err)
	}
	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}
	return answer.Data.Result, nil
}
