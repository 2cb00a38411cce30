-- One text per request, from a file of bodies; the summary is the last line, as JSON.
local requests, place = {}, 0

init = function(arguments)
  for body in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format("POST", "/embed", {["Content-Type"] = "application/json"}, body)
  end
end

request = function()
  place = place % #requests + 1
  return requests[place]
end

done = function(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '\n{"answers": %d, "microseconds": %d, "median": %d, "p99": %d, "failed": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
