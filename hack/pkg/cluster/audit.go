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

package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// auditEvent is a line of the audit log, as far as it matters.
type auditEvent struct {
	Verb string
	User struct {
		Username string
	}
	ObjectRef struct {
		Resource, Namespace, Name, Subresource string
	}
	ResponseStatus struct {
		Code int
	}
}

func (c *Cluster) readAudit(each func(e *auditEvent)) error {
	f, err := os.Open(c.AuditLog())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// Half a line is written completely later.
			return nil
		} else if err != nil {
			return err
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: %w", c.AuditLog(), err)
		}
		each(&e)
	}
}
