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
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// This file knows how custom resources say that they have finished. There is no standard. A
// claim is only released when no pod uses it either, so a wrong guess costs a workload that
// starts pods again its devices, but never those of a pod that runs.

// finishedConditions are the types of those conditions in the status of a custom
// resource which say that it has finished, if they are true. Most of those that are like a
// Job use one of them, among others JobSet, Kubeflow's TrainJob and MPIJob, and Argo's Workflow.
var finishedConditions = sets.New("Complete", "Completed", "Finished", "Succeeded", "Failed")

// finishedPhase is a field of a custom resource, and which of its values mean that it has finished.
type finishedPhase struct {
	path   []string
	values sets.Set[string]
}

// anyFinishedPhase is for kinds that are not in finishedPhases. It has the final phases of a pod,
// and the one that several kinds use in place of Succeeded.
var anyFinishedPhase = finishedPhase{path: []string{"status", "phase"}, values: sets.New("Succeeded", "Completed", "Failed")}

// finishedPhases are those of kinds that have a field of their own. What can go on again, like
// something that is suspended or gets another try, has not finished.
var finishedPhases = map[schema.GroupKind]finishedPhase{
	// github.com/ray-project/kuberay/ray-operator v1.5.0, apis/ray/v1: JobDeploymentStatus.
	{Group: "ray.io", Kind: "RayJob"}: {
		path:   []string{"status", "jobDeploymentStatus"},
		values: sets.New("Complete", "Failed", "ValidationFailed"),
	},
	// volcano.sh/apis v1.14.0, pkg/apis/batch/v1alpha1: JobPhase. An aborted Job can be resumed.
	{Group: "batch.volcano.sh", Kind: "Job"}: {
		path:   []string{"status", "state", "phase"},
		values: sets.New("Completed", "Failed", "Terminated"),
	},
	// github.com/kubeflow/spark-operator/v2 v2.5.0, api/v1beta2: ApplicationStateType.
	{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}: {
		path:   []string{"status", "applicationState", "state"},
		values: sets.New("COMPLETED", "FAILED"),
	},
	// github.com/argoproj/argo-workflows/v3 v3.7.0, pkg/apis/workflow/v1alpha1: WorkflowPhase.
	{Group: "argoproj.io", Kind: "Workflow"}: {
		path:   []string{"status", "phase"},
		values: sets.New("Succeeded", "Failed", "Error"),
	},
	// github.com/project-codeflare/appwrapper v1.2.0, api/v1beta2: AppWrapperPhase.
	{Group: "workload.codeflare.dev", Kind: "AppWrapper"}: {
		path:   []string{"status", "phase"},
		values: sets.New("Succeeded", "Failed"),
	},
}

// endless are kinds with such a condition that never finish.
var endless = sets.New(
	// github.com/argoproj/argo-rollouts, pkg/apis/rollouts/v1alpha1: "Completed" is for its latest revision.
	schema.GroupKind{Group: "argoproj.io", Kind: "Rollout"},
)

// finished returns what in the status of a custom resource says that it has finished, empty if
// nothing does. Whoever created the custom resource decides what the status looks like.
func finished(obj *unstructured.Unstructured) string {
	if endless.Has(obj.GroupVersionKind().GroupKind()) {
		return ""
	}
	if condition := finishedCondition(obj); condition != "" {
		return condition
	}
	phase, known := finishedPhases[obj.GroupVersionKind().GroupKind()]
	if !known {
		phase = anyFinishedPhase
	}
	value, _, err := unstructured.NestedString(obj.Object, phase.path...)
	if err != nil || !phase.values.Has(value) {
		return ""
	}
	return strings.Join(phase.path, ".") + " " + value
}

// finishedCondition returns the type of the condition in the status of a custom
// resource which says that it has finished, empty if there is none.
//
// "Succeeded" may be false because it has failed (Tekton, Knative), or because it is not
// done yet (others). It is the end only together with the time of the end.
func finishedCondition(obj *unstructured.Unstructured) string {
	conditions, _, err := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	if err != nil {
		// The status is not an object. That is not a problem here.
		return ""
	}
	completionTime, _, err := unstructured.NestedString(obj.Object, "status", "completionTime")
	completed := err == nil && completionTime != ""
	list, _ := conditions.([]interface{})
	for _, item := range list {
		condition, ok := item.(map[string]interface{})
		if !ok {
			continue
		}
		conditionType, _ := condition["type"].(string)
		if status, _ := condition["status"].(string); status == string(metav1.ConditionTrue) && finishedConditions.Has(conditionType) {
			return conditionType
		} else if status == string(metav1.ConditionFalse) && conditionType == "Succeeded" && completed {
			return "not Succeeded"
		}
	}
	return ""
}
