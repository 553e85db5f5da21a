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

package resourceclaim

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
)

// TestFinishedPhases has an object of each kind that says in a field of its own that it has finished.
func TestFinishedPhases(t *testing.T) {
	for name, test := range map[string]struct {
		apiVersion, kind string
		status           string
		expect           string
	}{
		"ray-complete":      {"ray.io/v1", "RayJob", `{"jobStatus":"SUCCEEDED","jobDeploymentStatus":"Complete","rayClusterName":"train-x7k2p"}`, "status.jobDeploymentStatus Complete"},
		"ray-failed":        {"ray.io/v1", "RayJob", `{"jobStatus":"FAILED","jobDeploymentStatus":"Failed","reason":"AppFailed"}`, "status.jobDeploymentStatus Failed"},
		"ray-invalid":       {"ray.io/v1", "RayJob", `{"jobDeploymentStatus":"ValidationFailed"}`, "status.jobDeploymentStatus ValidationFailed"},
		"ray-running":       {"ray.io/v1", "RayJob", `{"jobStatus":"RUNNING","jobDeploymentStatus":"Running"}`, ""},
		"ray-retrying":      {"ray.io/v1", "RayJob", `{"jobStatus":"FAILED","jobDeploymentStatus":"Retrying","failed":1}`, ""},
		"ray-suspended":     {"ray.io/v1", "RayJob", `{"jobDeploymentStatus":"Suspended"}`, ""},
		"ray-cluster":       {"ray.io/v1", "RayCluster", `{"state":"ready","conditions":[{"type":"HeadPodReady","status":"True"}]}`, ""},
		"volcano-completed": {"batch.volcano.sh/v1alpha1", "Job", `{"state":{"phase":"Completed"},"conditions":[{"status":"Completed"}],"succeeded":3}`, "status.state.phase Completed"},
		"volcano-failed":    {"batch.volcano.sh/v1alpha1", "Job", `{"state":{"phase":"Failed"}}`, "status.state.phase Failed"},
		"volcano-ended":     {"batch.volcano.sh/v1alpha1", "Job", `{"state":{"phase":"Terminated"}}`, "status.state.phase Terminated"},
		"volcano-aborted":   {"batch.volcano.sh/v1alpha1", "Job", `{"state":{"phase":"Aborted"}}`, ""},
		"volcano-running":   {"batch.volcano.sh/v1alpha1", "Job", `{"state":{"phase":"Running"},"phase":"Completed"}`, ""},
		"spark-completed":   {"sparkoperator.k8s.io/v1beta2", "SparkApplication", `{"applicationState":{"state":"COMPLETED"}}`, "status.applicationState.state COMPLETED"},
		"spark-failed":      {"sparkoperator.k8s.io/v1beta2", "SparkApplication", `{"applicationState":{"state":"FAILED","errorMessage":"driver"}}`, "status.applicationState.state FAILED"},
		"spark-rerun":       {"sparkoperator.k8s.io/v1beta2", "SparkApplication", `{"applicationState":{"state":"PENDING_RERUN"}}`, ""},
		"spark-resubmitted": {"sparkoperator.k8s.io/v1beta2", "SparkApplication", `{"applicationState":{"state":"SUBMISSION_FAILED"}}`, ""},
		"argo-error":        {"argoproj.io/v1alpha1", "Workflow", `{"phase":"Error"}`, "status.phase Error"},
		"argo-condition":    {"argoproj.io/v1alpha1", "Workflow", `{"phase":"Succeeded","conditions":[{"type":"PodRunning","status":"False"},{"type":"Completed","status":"True"}]}`, "Completed"},
		"argo-rollout":      {"argoproj.io/v1alpha1", "Rollout", `{"phase":"Healthy","conditions":[{"type":"Healthy","status":"True"},{"type":"Completed","status":"True"}]}`, ""},
		"argo-running":      {"argoproj.io/v1alpha1", "Workflow", `{"phase":"Running"}`, ""},
		"appwrapper":        {"workload.codeflare.dev/v1beta2", "AppWrapper", `{"phase":"Succeeded","conditions":[{"type":"QuotaReserved","status":"False"}]}`, "status.phase Succeeded"},
		"appwrapper-reset":  {"workload.codeflare.dev/v1beta2", "AppWrapper", `{"phase":"Resetting"}`, ""},
		"trainjob":          {"trainer.kubeflow.org/v1alpha1", "TrainJob", `{"conditions":[{"type":"Suspended","status":"False"},{"type":"Complete","status":"True"}]}`, "Complete"},
		"mpijob":            {"kubeflow.org/v2beta1", "MPIJob", `{"conditions":[{"type":"Running","status":"False"},{"type":"Failed","status":"True"}]}`, "Failed"},
		"any-succeeded":     {"example.com/v1", "Training", `{"phase":"Succeeded"}`, "status.phase Succeeded"},
		"any-completed":     {"example.com/v1", "Training", `{"phase":"Completed"}`, "status.phase Completed"},
		"any-running":       {"example.com/v1", "Training", `{"phase":"Running"}`, ""},
		"any-object":        {"example.com/v1", "Training", `{"phase":{"Succeeded":true}}`, ""},
		"other-group":       {"example.com/v1", "RayJob", `{"jobDeploymentStatus":"Complete"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			obj := customWorkload(test.kind, workloadName, workloadUID)
			obj.SetAPIVersion(test.apiVersion)
			var status map[string]interface{}
			require.NoError(t, json.Unmarshal([]byte(test.status), &status))
			obj.Object["status"] = status
			assert.Equal(t, test.expect, finished(obj))
			assert.Equal(t, test.expect != "", workloadStatusOf(obj).state == retention.Done)
			assert.Equal(t, test.expect != "", workloadStatusOf(obj).mayResume)
		})
	}
}

// TestFinishedCondition checks that any kind of status can be dealt with.
func TestFinishedCondition(t *testing.T) {
	for name, test := range map[string]struct {
		status interface{}
		expect string
	}{
		"no-status":     {},
		"string":        {status: "Complete"},
		"no-conditions": {status: map[string]interface{}{"phase": "Complete"}},
		"no-list":       {status: map[string]interface{}{"conditions": map[string]interface{}{"type": "Complete", "status": "True"}}},
		"no-type":       {status: map[string]interface{}{"conditions": []interface{}{map[string]interface{}{"status": "True"}}}},
		"numbers":       {status: map[string]interface{}{"conditions": []interface{}{map[string]interface{}{"type": int64(1), "status": true}}}},
		"lower-case":    {status: map[string]interface{}{"conditions": []interface{}{map[string]interface{}{"type": "complete", "status": "True"}}}},
		"boolean":       {status: map[string]interface{}{"conditions": []interface{}{map[string]interface{}{"type": "Complete", "status": true}}}},
		"unknown":       {status: map[string]interface{}{"conditions": []interface{}{map[string]interface{}{"type": "Complete", "status": "Unknown"}}}},
		"complete":      {status: map[string]interface{}{"conditions": []interface{}{nil, map[string]interface{}{"type": "Complete", "status": "True"}}}, expect: "Complete"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := customWorkload("Training", workloadName, workloadUID)
			if test.status != nil {
				obj.Object["status"] = test.status
			}
			assert.Equal(t, test.expect, finished(obj))
			assert.Equal(t, test.expect != "", workloadStatusOf(obj).state == retention.Done)
		})
	}
}

// TestSucceededFalse covers custom resources that have failed, or are not done yet.
func TestSucceededFalse(t *testing.T) {
	obj := finishedCustom("Succeeded", "False")
	assert.Empty(t, finished(obj))
	obj.Object["status"].(map[string]interface{})["completionTime"] = "2026-01-01T00:00:00Z"
	assert.Equal(t, "not Succeeded", finished(obj))
	assert.Equal(t, "Finished", finished(finishedCustom("Finished", "True")))
	assert.Empty(t, finished(finishedCustom("Finished", "False")))
	assert.Equal(t, retention.Active, workloadStatusOf(&batchv1.Job{}).state)
}
