"""Short chat templates that do with tools what those of well-known models do."""

from __future__ import annotations

_HERMES = """
{%- if tools %}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif %}
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{%- endif %}
{%- for message in messages %}
  {%- if message.role == "user" or (message.role == "assistant" and not message.tool_calls) %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
  {%- elif message.role == "assistant" %}
<|im_start|>assistant
    {%- if message.content %}{{ '\\n' + message.content }}{% endif %}
    {%- for tool_call in message.tool_calls %}
      {%- if tool_call.function is defined %}{% set tool_call = tool_call.function %}{% endif %}
<tool_call>
{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}
</tool_call>
    {%- endfor %}<|im_end|>
  {%- elif message.role == "tool" %}
    {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}<|im_start|>user{% endif %}
<tool_response>
{{ message.content }}
</tool_response>
    {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}<|im_end|>{% endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_LLAMA = """{{- bos_token }}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
  {%- set system_message = messages[0]['content'] | trim %}{% set messages = messages[1:] %}
{%- endif %}
{{- system_message }}
{%- if tools is not none %}
  {{- 'Answer as {"name": function name, "parameters": dictionary of its arguments}.' }}
  {%- for t in tools %}{{ t | tojson(indent=4) }}{{ "\\n\\n" }}{% endfor %}
{%- endif %}
{%- for message in messages %}
  {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
    {{- '[' + message['role'] + ']' + message['content'] | trim + '<|im_end|>' }}
  {%- elif 'tool_calls' in message %}
    {%- for call in message.tool_calls %}
      {{- '[assistant]{"name": "' + call.function.name + '", "parameters": ' }}
      {{- call.function.arguments | tojson }}{{- '}<|im_end|>' }}
    {%- endfor %}
  {%- elif message.role == 'tool' or message.role == 'ipython' %}
    {{- '[ipython]' }}
    {%- if message.content is mapping or message.content is iterable %}
      {{- message.content | tojson }}
    {%- else %}
      {{- message.content }}
    {%- endif %}
    {{- '<|im_end|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"""

_MISTRAL = """{{- bos_token }}
{%- if messages[0]["role"] == "system" %}
  {%- set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
  {%- if message["role"] == "user" %}
    {%- if tools is not none and (message == loop_messages[-1]) %}
      {{- "[AVAILABLE_TOOLS] [" }}
      {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- '{"type": "function", "function": {' }}
        {%- for key, val in tool.items() if key != "return" %}
          {%- if val is string %}
            {{- '"' + key + '": "' + val + '"' }}
          {%- else %}
            {{- '"' + key + '": ' + val | tojson }}
          {%- endif %}
          {%- if not loop.last %}{{- ", " }}{% endif %}
        {%- endfor %}
        {{- "}}" }}{%- if not loop.last %}{{- ", " }}{% else %}{{- "]" }}{% endif %}
      {%- endfor %}
      {{- "[/AVAILABLE_TOOLS]" }}
    {%- endif %}
    {{- "[INST] " + message["content"] + "[/INST]" }}
  {%- elif message.tool_calls is defined and message.tool_calls is not none %}
    {{- "[TOOL_CALLS] [" }}
    {%- for tool_call in message.tool_calls %}
      {%- set out = tool_call.function | tojson %}
      {{- out[:-1] }}
      {%- if not tool_call.id is defined or tool_call.id | length != 9 %}
        {{- raise_exception("Tool call IDs are of length 9!") }}
      {%- endif %}
      {{- ', "id": "' + tool_call.id + '"}' }}{%- if not loop.last %}{{- ", " }}{% endif %}
    {%- endfor %}
    {{- "]" + eos_token }}
  {%- elif message["role"] == "assistant" %}
    {{- " " + message["content"] | trim + eos_token }}
  {%- elif message["role"] == "tool" %}
    {{- '[TOOL_RESULTS] {"content": ' + message.content | string + ", " }}
    {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
  {%- endif %}
{%- endfor %}"""

_LOOSE = """{%- if tools %}{{ tools }}{% endif %}
{%- for message in messages %}
  {%- if message['role'] == 'assistant' and not message['content'] %}
    {%- for tool in message['tool_calls'] %}
      {{- '<|im_start|>' + tool['function']['name'] + ' ' }}
      {{- tool['function']['arguments'] | string }}
    {%- endfor %}
    {{- '<|im_end|>' }}
  {%- elif message['role'] == 'tool' %}
    {{- '<|im_start|>' + message['name'] + ' ' + message['content'] + '<|im_end|>' }}
  {%- else %}
    {{- '<|im_start|>' + message['content'] + '<|im_end|>' }}
  {%- endif %}
{%- endfor %}"""

_SMOL = """{%- if tools %}
  {%- set ns = namespace(text="<tools>\\n") %}
  {%- for tool in tools %}
    {%- set ns.text = ns.text ~ (tool | string) ~ "\\n" %}
  {%- endfor %}
  {{- '<|im_start|>system\\n' + ns.text + "</tools>\\n<tool_call>[...]</tool_call><|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
  {%- set content = message.content if message.content is string else "" %}
  {%- if message.role == "tool" %}
    {{- "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
  {%- else %}
    {{- "<|im_start|>" + message.role + "\\n" + content }}
    {%- for call in message.tool_calls or [] %}
      {{- "<tool_call>" }}{{ call.function | tojson(ensure_ascii=True) }}{{ "</tool_call>" }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
  {%- endif %}
{%- endfor %}"""

_XML = """{%- if xml_tools %}<|im_start|>system
{% for tool in xml_tools[:] %}{{ tool | string }}{% endfor %}<tool_call>...</tool_call><|im_end|>
{%- endif %}
{%- for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"""

TEMPLATES = {
    "hermes": (_HERMES, "hermes"),
    "llama": (_LLAMA, "llama"),
    "mistral": (_MISTRAL, "mistral"),
    "loose": (_LOOSE, None),
    "xml": (_XML, "hermes"),
    "smol": (_SMOL, "hermes"),
}
"""Each with the format of calls that is to be found in it."""
