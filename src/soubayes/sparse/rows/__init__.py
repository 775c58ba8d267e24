"""One engine for responses whose rows are read by a likelihood.

| to change | look in |
| --- | --- |
| where rows live, and what one pass over them says about q | `passes`, `streams` |
| several predictors a row | `coordinates`, `classes` |
| q, the model of the columns, and the prior side of J | `state` |
| the minimum of J at one confidence | `newton`, `joint`, `dropped` |
| Algorithm 1 of the paper | `coordinate` |
| where a path begins; a large sparse X | `starts` |
| the path of confidences | `path` |
| which point of it is reported; residuals that contradict the family | `criterion` |
| a candidate between dense and sparse | `dial` |
| what the shell asks for: design, sparse point, candidates, held-out rows | `family`, `many_rows` |
| what is reported of a fit | `report` |
| which columns carry an effect | `supports` |
"""
