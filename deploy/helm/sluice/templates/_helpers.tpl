{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Node ids or ports as a range: (list first count) */}}
{{- define "sluice.range" -}}
{{- $first := int (index . 0) -}}
{{- printf "%d-%d" $first (sub (add $first (index . 1)) 1) -}}
{{- end }}

{{- /* The first node port of a pod: (list root ordinal) */}}
{{- define "sluice.nodePort" -}}
{{- $values := (index . 0).Values -}}
{{- add $values.external.firstNodePort (mul (index . 1) (add $values.brokers.count 1)) -}}
{{- end }}

{{- /* sluice.yaml of a pod: (list root ordinal). Pods differ in their node ports alone. */}}
{{- define "sluice.config" -}}
{{- $root := index . 0 -}}
{{- $count := $root.Values.brokers.count -}}
{{- $external := $root.Values.external -}}
{{- $ids := include "sluice.range" (list $root.Values.brokers.first $count) -}}
{{- $inside := dict
  "name" "INTERNAL"
  "bind" ":9092"
  "advertise" (printf "{instance}.%s.svc.cluster.local" $root.Release.Namespace)
  "brokers" (dict $ids (include "sluice.range" (list 9100 $count))) -}}
{{- $listeners := list (merge $inside $root.Values.listener) -}}
{{- if $external.type -}}
  {{- $port := 9092 -}}
  {{- $first := 9100 -}}
  {{- if eq $external.type "NodePort" -}}
    {{- $port = int (include "sluice.nodePort" .) -}}
    {{- $first = add $port 1 -}}
  {{- end -}}
  {{- $ports := dict
    "bind" (include "sluice.range" (list 9200 $count))
    "advertise" (include "sluice.range" (list $first $count)) -}}
  {{- $outside := dict
    "name" "EXTERNAL"
    "bind" ":9192"
    "advertise" (printf "%s:%d" $external.host (int $port))
    "brokers" (dict $ids $ports) -}}
  {{- $listeners = append $listeners (merge $outside $external.listener) -}}
{{- end -}}
{{- $config := dict
  "cluster" $root.Values.cluster
  "owners" (dict "group" $root.Release.Name "secret_file" "/etc/sluice/secrets/owners.secret")
  "listeners" $listeners
  "quotas" (dict "store" (dict "type" "file" "path" "/etc/sluice/quotas/quotas.yaml"))
  "admin" (dict "bind" ":9404")
  "drain" (dict "delay" "5s" "timeout" "30s") -}}
{{- range $name, $section := $root.Values.config -}}
  {{- $_ := set $config $name $section -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}
