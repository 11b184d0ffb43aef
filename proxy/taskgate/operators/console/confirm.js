// The question before what changes something.

import { $, setText } from "./elements.js";

let settleIt = null;

// Asks. Resolves to null, or to an object, which has the `reason` if one was asked for and given.
export function confirm(title, text, action, { asksWhy = false } = {}) {
  $("confirm-reason").value = "";
  $("confirm-why").hidden = !asksWhy;
  setText($("confirm-title"), title);
  setText($("confirm-text"), text);
  setText($("confirm-yes"), action);
  $("confirm-dialog").showModal();
  $("confirm-no").focus();
  return new Promise((resolve) => {
    settleIt = resolve;
  });
}

function settle(isAgreed) {
  const resolve = settleIt;
  settleIt = null;
  const reason = $("confirm-reason").value.trim();
  if ($("confirm-dialog").open) $("confirm-dialog").close();
  resolve?.(isAgreed ? (reason ? { reason } : {}) : null);
}

$("confirm-yes").addEventListener("click", () => settle(true));
$("confirm-reason").addEventListener("keydown", (event) => {
  if (event.key === "Enter") settle(true);
});
$("confirm-no").addEventListener("click", () => settle(false));
$("confirm-dialog").addEventListener("close", () => settle(false));
