"""The line: request, facts, plan, recipe, artifacts, image, record.

Others import `attached_record`, `choices`, `effort`, `pipeline`, `planning`, `rank`, `record`,
`records`, `report`, `report_html`, `report_html_rank`, `report_plan`, `resolve`, `running`,
`services`, `stages`, `trace`.
"""
