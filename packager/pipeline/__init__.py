"""The line: request, facts, plan, recipe, artifacts, image, record.

Others import `attached_record`, `choices`, `effort`, `elsewhere`, `licences`, `lock`, `pipeline`,
`plan_changes`, `planning`, `rank`, `record`, `records`, `report`, `report_page`, `report_plan`,
`report_ranking`, `resolve`, `running`, `services`, `stages`, `trace`.
"""
