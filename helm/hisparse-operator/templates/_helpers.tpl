{{/* Name of the chart, for labels. */}}
{{- define "hisparse.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name of objects: 53 characters, the longest release name of Helm, so that suffixes still fit into 63. */}}
{{- define "hisparse.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name of objects outside of namespaces: releases of the same name in two namespaces must not share them. */}}
{{- define "hisparse.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "hisparse.fullname" .) }}
{{- end }}

{{- define "hisparse.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "hisparse.fullname" .) }}
{{- end }}

{{/* What never changes in the life of a release: selectors are made of it. */}}
{{- define "hisparse.selectorLabels" -}}
app.kubernetes.io/name: {{ include "hisparse.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "hisparse.labels" -}}
{{ include "hisparse.selectorLabels" . }}
app.kubernetes.io/part-of: hisparse
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "hisparse.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* Rights on objects and their children, in the cluster or in each watched namespace. Children are written by server-side apply,
which asks for create and patch only; they go with their owner, so nothing is ever deleted. */}}
{{- define "hisparse.objectRules" -}}
- apiGroups: [hisparse.dev]
  resources: [hisparsedeployments]
  verbs: [get, list, watch]
- apiGroups: [hisparse.dev]
  resources: [hisparsedeployments/status]
  verbs: [patch]
{{- if .Values.rbac.ownerReferencesPermissionEnforcement }}
- apiGroups: [hisparse.dev]
  resources: [hisparsedeployments/finalizers]
  verbs: [update]
{{- end }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps, services]
  # get: before one is created, its name is looked up, so that nobody else's is taken over
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* Rights that are needed for the whole cluster: what is left of a node is its memory less what all pods on it request. */}}
{{- define "hisparse.capacityRules" -}}
- apiGroups: [""]
  resources: [nodes, pods]
  verbs: [list, watch]
{{- end }}
