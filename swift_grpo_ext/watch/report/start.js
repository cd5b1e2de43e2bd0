startGallery();
drawSummary();
drawCurves();
fillFilters();
choose();
