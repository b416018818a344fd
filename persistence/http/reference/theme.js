// The colours of the reference on a dark screen; those of Redoc itself suit a light one.
const DARK = {
  colors: {
    primary: {main: "#7db7f2"},
    success: {main: "#86d597"},
    warning: {main: "#f0c36b"},
    error: {main: "#f79a9a"},
    gray: {50: "#242c36", 100: "#2d3641"},
    text: {primary: "#e4e8ee", secondary: "#a2adbb"},
    border: {dark: "#6d7988", light: "#2d3641"},
    responses: {
      success: {color: "#86d597", backgroundColor: "#17311d", tabTextColor: "#86d597"},
      error: {color: "#f79a9a", backgroundColor: "#3a1a1c", tabTextColor: "#f79a9a"},
      redirect: {color: "#f0c36b", backgroundColor: "#372a10", tabTextColor: "#f0c36b"},
      info: {color: "#7db7f2", backgroundColor: "#1d3147", tabTextColor: "#7db7f2"},
    },
  },
  schema: {nestedBackground: "#1a2028", typeNameColor: "#a2adbb", typeTitleColor: "#a2adbb", requireLabelColor: "#f79a9a"},
  typography: {code: {color: "#f79a9a", backgroundColor: "#242c36"}},
  sidebar: {backgroundColor: "#1a2028", textColor: "#e4e8ee"},
  rightPanel: {backgroundColor: "#0d1116"},
};
if (matchMedia("(prefers-color-scheme: dark)").matches) {
  document.querySelector("redoc").setAttribute("theme", JSON.stringify(DARK));
}
