// The theme: as the system says, or as chosen here. A plain script, so that it is set before the
// first paint and no page flashes in the wrong colours.
(() => {
  const kept = "viewkeep-theme";
  const next = { auto: "light", light: "dark", dark: "auto" };
  let theme = "auto";
  try {
    theme = localStorage.getItem(kept) || "auto";
  } catch {
    // storage may be forbidden; the system's theme will do
  }
  if (!(theme in next)) theme = "auto";

  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  apply();

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => {
      button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[theme];
      button.setAttribute("aria-label", `Theme: ${theme}`);
    };
    say();
    button.addEventListener("click", () => {
      theme = next[theme];
      try {
        localStorage.setItem(kept, theme);
      } catch {
        // then it lasts as long as the page
      }
      apply();
      say();
    });
  });
})();
